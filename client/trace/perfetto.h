// A trace as ui.perfetto.dev and chrome://tracing read it: the JSON of Chrome's trace events.
//
// Three processes: the client with a row for each of its threads, the gateway with one for each
// way, the worker with one for each executor. All times are on the client's clock, in microseconds
// since the first span. A Run has arrows: from the call that asked for it, by the gateway, to its
// first and last kernel, and on to the call that waited for its value. otherData says how well the
// clocks are known.
//
// Always valid JSON, whatever the other sides have sent: text is cut to printable ASCII.
#pragma once

#include <ostream>

#include "client/trace/spans.h"

namespace outboard::trace {

void WritePerfetto(const Collected& collected, std::ostream& out);

}  // namespace outboard::trace
