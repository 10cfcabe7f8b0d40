// Kernels that one launch computes several times, over other buffers each time.
//
// The first argument of a kernel's SINK says how many copies of it there are. Copy c reads and
// writes buffers c * slots .. (c + 1) * slots - 1 of the launch, where slots is one past the
// largest GLOBAL slot. No copy reads or writes what another one writes. Without an argument there
// is one. The PTX renderer alone has a form for more
// (compiler/render/ptx/parameters.cc).
//
// A second argument allows TF32, and a third one says which buffers stay as they are (SinkArg,
// AllowsTf32 and SteadySlots in compiler/ir/accessors.h).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/compiled_kernel.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard {

static_assert(limits::kCopiesMax == CompiledKernel::kCopiesMax);

// The parameters of a launch of so many copies. Of a kernel whose views (MappedTensor) nobody knows
// yet, `maps` is 0.
constexpr int64_t ParameterBytes(int64_t copies, int64_t slots, int64_t maps) {
  constexpr int64_t kMapBytes = 128;
  constexpr int64_t kVarsAndAlignment = 128;
  return copies * (static_cast<int64_t>(sizeof(uint64_t)) * slots + kMapBytes * maps) +
         kVarsAndAlignment;
}

inline int64_t CopiesOf(const UOp* sink) { return sink->arg.empty() ? 1 : sink->int_value(); }

// What one of so many copies is planned for: its share of the device, since all run at once.
inline Target ShareOf(Target target, int64_t copies) {
  target.multiprocessors = (target.multiprocessors + copies - 1) / copies;
  return target;
}

// The kernel `sink` in so many copies; 1: as it is alone. Slots are steady in a kernel of one copy.
inline const UOp* WithCopies(Graph& graph, const UOp* sink, int64_t copies) {
  const int64_t steady = copies > 1 ? 0 : SteadySlots(sink);
  return graph.MakeChecked(Op::kSink, DType::kVoid, sink->src,
                           SinkArg(copies, AllowsTf32(sink), steady));
}

// The same kernel, alone, whose products may be of TF32.
inline const UOp* WithTf32(Graph& graph, const UOp* sink) {
  constexpr int64_t kOneCopy = 1;
  return graph.MakeChecked(Op::kSink, DType::kVoid, sink->src, SinkArg(kOneCopy, true));
}

// The same kernel, alone, with these steady slots (SteadySlots), of which there is one at least.
inline const UOp* WithSteadySlots(Graph& graph, const UOp* sink, int64_t slots) {
  constexpr int64_t kOneCopy = 1;
  return graph.MakeChecked(Op::kSink, DType::kVoid, sink->src,
                           SinkArg(kOneCopy, AllowsTf32(sink), slots));
}

}  // namespace outboard
