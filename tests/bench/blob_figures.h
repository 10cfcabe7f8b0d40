// How fast a gigabyte of weights gets into the cloud, and how soon a session has one that is there
// already; over loopback, to a gateway and a worker of the benchmark's own.
#pragma once

namespace outboard::bench {

void BlobFigures();

}  // namespace outboard::bench
