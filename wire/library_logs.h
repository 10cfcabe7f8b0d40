// What gRPC and protobuf would write to stderr by themselves: lines for their developers. What a
// user or an operator needs is in our own errors and logs.
#pragma once

namespace outboard::wire {

// Silences both for the process, but for failed assertions; once, before the first channel or
// server. With GRPC_VERBOSITY in the environment nothing is silenced. Threads: any.
void SilenceLibraryLogs();

}  // namespace outboard::wire
