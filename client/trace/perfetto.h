// Writes a trace for ui.perfetto.dev and chrome://tracing: the JSON of Chrome's trace events.
//
// Three processes: the client with a row per thread, the gateway with one per direction, the worker
// with one per executor. All times are on the client's clock, in microseconds since the first span.
// Arrows connect the call that requested a Run, the gateway, the Run's first and last kernel, and
// the call that waited for its value. otherData reports the precision of the clock offsets.
//
// Always valid JSON, whatever the other sides sent: text is reduced to printable ASCII.
#pragma once

#include <ostream>

#include "client/trace/spans.h"

namespace outboard::trace {

void WritePerfetto(const Collected& collected, std::ostream& out);

}  // namespace outboard::trace
