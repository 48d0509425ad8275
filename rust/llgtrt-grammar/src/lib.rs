//! Grammar admission, compilation, matchers and the parallel mask pool
