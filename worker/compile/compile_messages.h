// Converts the messages of a compile process (proto/compiler.proto) from and to the types of
// kernel_compiler.h. Objects on disk use the same format. Threads: pure.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/target.h"
#include "proto/compiler.pb.h"
#include "worker/compile/kernel_compiler.h"

namespace outboard::worker {

proto::CompileTarget TargetToWire(const Target& target);
// Errors: INVALID_ARGUMENT  a number that no target has; names the field
absl::StatusOr<Target> TargetFromWire(const proto::CompileTarget& message);

// Without a target, and with one.
proto::CompileRequest ToRequest(std::span<const KernelSource> kernels);
proto::CompileRequest ToRequest(std::span<const KernelSource> kernels, const Target& target);
std::vector<KernelSource> FromRequest(const proto::CompileRequest& request);
// What to compile for; HostTarget() where the request has none. Errors: as TargetFromWire.
absl::StatusOr<Target> TargetOfRequest(const proto::CompileRequest& request);

proto::CompileResult ToResult(absl::StatusOr<CompiledKernel> compiled);
// Errors: the one that the result holds.
absl::StatusOr<CompiledKernel> FromResult(proto::CompileResult result);

}  // namespace outboard::worker
