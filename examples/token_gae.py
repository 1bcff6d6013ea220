"""PPO over tokens, packed: sequences of any length one behind the other, without padding.

    python examples/token_gae.py             # a minute on a CPU
    python examples/token_gae.py --smoke

A small recurrent network writes sequences over an alphabet of eight letters, until it writes the end token or the longest
length is reached. Then, and only then, a sequence is paid for the letters that follow their predecessor in the alphabet (B
after A, A after H). Nothing else is known to the learner, so all credit has to travel back over the tokens: that is what
`gae_packed` is for. Nothing follows the pay, so the value behind every sequence is 0, also behind one that was stopped.

`cu_seqlens`, the offsets of the sequences in the packed buffer, are what attention kernels for packed sequences take.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from tqdm import tqdm

import rl_triton_jax.torch

LETTERS = 8
END = LETTERS  # one more token
CLIP, EPOCHS = 0.2, 4


class Writer(nn.Module):
    """Policy and value of every prefix of a sequence."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS + 2, hidden)  # letters, end, begin
        self.memory = nn.GRU(hidden, hidden, batch_first=True)
        self.policy, self.value = nn.Linear(hidden, LETTERS + 1), nn.Linear(hidden, 1)

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """(logits, values, state) after each of `tokens`, `[batch, length]`."""
        out, state = self.memory(self.embedding(tokens), state)
        return self.policy(out), self.value(out).squeeze(-1), state


@torch.no_grad()
def write(model: Writer, sequences: int, longest: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens, their log-probabilities, lengths): `[sequences, longest]` twice and `[sequences]`; END counts as a token."""
    token = torch.full((sequences, 1), LETTERS + 1, device=device)
    state, tokens, log_probs = None, [], []
    for _ in range(longest):
        logits, _, state = model(token, state)
        choice = torch.distributions.Categorical(logits=logits[:, -1])
        token = choice.sample()[:, None]
        tokens.append(token)
        log_probs.append(choice.log_prob(token[:, 0])[:, None])
    tokens, log_probs = torch.cat(tokens, 1), torch.cat(log_probs, 1)
    ended = (tokens == END).int()
    lengths = torch.where(ended.any(1), ended.argmax(1) + 1, longest)
    return tokens, log_probs, lengths


def score(tokens: Tensor, real: Tensor) -> Tensor:
    """Share of the letters that follow their predecessor, times ten: `[sequences]`."""
    follows = (tokens[:, 1:] == (tokens[:, :-1] + 1) % LETTERS) & real[:, 1:] & (tokens[:, 1:] != END)
    return 10 * follows.sum(1) / tokens.shape[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--sequences", type=int, default=128)
    parser.add_argument("--longest", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true", help="a few updates only, to see that everything runs")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Writer().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    means: list[float] = []
    packed = 0
    for _ in tqdm(range(3 if args.smoke else args.updates), unit="update", disable=None):
        tokens, log_probs, lengths = write(model, args.sequences, args.longest, device)
        real = torch.arange(args.longest, device=device) < lengths[:, None]
        scores = score(tokens, real)
        means.append(scores.mean().item())
        begin = torch.full_like(tokens[:, :1], LETTERS + 1)
        prefixes = torch.cat([begin, tokens], 1)

        # Packed: row t of a sequence is the prefix that token t was written after.
        cu_seqlens = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        rewards = torch.zeros_like(log_probs)
        rewards[torch.arange(args.sequences, device=device), lengths - 1] = scores
        with torch.no_grad():
            _, values, _ = model(prefixes[:, :-1])
        advantages, targets = rl_triton_jax.torch.gae_packed(
            rewards[real], values[real], cu_seqlens, last_values=0.0, gamma=1.0, lambda_=0.95
        )
        packed += advantages.numel()

        gain = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        for _ in range(EPOCHS):
            logits, values, _ = model(prefixes[:, :-1])
            choice = torch.distributions.Categorical(logits=logits[real])
            ratio = (choice.log_prob(tokens[real]) - log_probs[real]).exp()
            surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
            loss = -surrogate.mean() + 0.1 * (values[real] - targets).square().mean() - 0.003 * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    best = 10 * (args.longest - 1) / args.longest
    print(
        f"mean score {means[0]:.2f} at first, {sum(means[-10:]) / len(means[-10:]):.2f} over the last updates "
        f"(at most {best:.2f}); {packed:,} tokens packed, on {device.type}"
    )


if __name__ == "__main__":
    main()
