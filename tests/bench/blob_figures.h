// Measures the upload speed of a gigabyte of weights, and the start of a session with weights that
// the cloud has already; over loopback, to a gateway and a worker of the benchmark's own.
#pragma once

namespace outboard::bench {

void BlobFigures();

}  // namespace outboard::bench
