"""One file per estimator: maths, paper, the public function, and the array form of its coefficients."""
