// Converts the messages of proto/kernels.proto from and to the types of worker/tuning, and bounds
// them. Threads: pure.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "proto/kernels.pb.h"
#include "worker/process/message_limits.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

// Of Opts, names and texts of a target.
inline constexpr size_t kKernelTextBytesMax = 4096;

void DemandToWire(const Demand& demand, proto::KernelDemand& message);
// A demand whose key is that of its canonical form, on this hardware.
Demand DemandFromWire(const proto::KernelDemand& message, const std::string& hardware);

// Errors: INVALID_ARGUMENT  more kernels or longer texts than a client sends (names the limit), or
//         a target, which is named in a request of its own
absl::Status CheckCompile(const proto::CompileKernels& compile);
// Errors: INVALID_ARGUMENT  longer texts than a client sends; names the limit
absl::Status CheckTarget(const proto::CompileTarget& target);
// Likewise, of linked code, and of keys that are none.
absl::Status CheckLinked(const proto::FindLinked& find);
absl::Status CheckLinked(const proto::AddLinked& add);
// Of a number of things in a request. Errors: INVALID_ARGUMENT  more than `most`; names what
absl::Status CheckCount(int count, size_t most, const char* what);

}  // namespace outboard::worker
