// Figures of this process from /proc: processor time, memory, descriptors, threads. Under the names
// that Prometheus' own libraries give them.
#pragma once

#include "telemetry/samples.h"

namespace outboard::telemetry {

// Adds what the kernel tells; what it does not tell is left out. Threads: any.
void SampleProcess(Samples& samples);

}  // namespace outboard::telemetry
