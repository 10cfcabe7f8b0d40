// Converts the messages of proto/kernels.proto from and to the types of worker/tuning, and bounds
// them. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "compiler/ir/limits.h"
#include "proto/kernels.pb.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::worker {

// Of one request: the longest kernel that there can be, and its header. A batch of more kernels
// than fit is sent as several requests. A supervisor holds one request of each process.
inline constexpr uint32_t kKernelRequestBytesMax =
    static_cast<uint32_t>(limits::kGraphBytesMax) + (1u << 20);
// Of one reply: a batch of compiled kernels as the box sent it, and its header.
inline constexpr uint32_t kKernelReplyBytesMax = (64u << 20) + (1u << 20);
// A client fills a request up to these; together with the limit of one kernel they leave room.
inline constexpr size_t kBatchKernelsMax = 512;
inline constexpr size_t kBatchBytesMax = size_t{4} << 20;
inline constexpr size_t kBatchDemandsMax = 64;  // of kDemandBytesMax each
// Of Opts, names and texts of a target.
inline constexpr size_t kKernelTextBytesMax = 4096;

void KeyToWire(const TuningKey& key, proto::KernelKey& message);
TuningKey KeyFromWire(const proto::KernelKey& message);
void DemandToWire(const Demand& demand, proto::KernelDemand& message);
Demand DemandFromWire(const proto::KernelDemand& message);

// Errors: INVALID_ARGUMENT  more kernels or longer texts than a client sends; names the limit
absl::Status CheckCompile(const proto::CompileKernels& compile);

}  // namespace outboard::worker
