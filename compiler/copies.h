// Kernels that one launch computes several times, over other buffers each time.
//
// The first argument of a kernel's SINK says how many copies of it there are. Copy c reads and
// writes buffers c * slots .. (c + 1) * slots - 1 of the launch, where slots is one past the
// largest GLOBAL slot. No copy reads or writes what another one writes. Without an argument there
// is one. The PTX renderer alone has a form for more
// (compiler/render/ptx/parameters.cc).
//
// A second argument, 1, allows TF32, and a third one says which buffers stay as they are
// (AllowsTf32 and SteadySlots in compiler/ir/accessors.h).
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

inline constexpr int64_t kTf32Allowed = 1;

inline int64_t CopiesOf(const UOp* sink) { return sink->arg.empty() ? 1 : sink->int_value(); }

// What one of so many copies is planned for: its share of the device, since all run at once.
inline Target ShareOf(Target target, int64_t copies) {
  target.multiprocessors = (target.multiprocessors + copies - 1) / copies;
  return target;
}

// The kernel `sink` in so many copies; 1: as it is alone. Slots are steady in a kernel of one copy.
inline const UOp* WithCopies(Graph& graph, const UOp* sink, int64_t copies) {
  const int64_t steady = copies > 1 ? 0 : SteadySlots(sink);
  std::vector<int64_t> arg;
  if (copies > 1 || AllowsTf32(sink) || steady != 0) arg.push_back(copies);
  if (AllowsTf32(sink) || steady != 0) arg.push_back(AllowsTf32(sink) ? kTf32Allowed : 0);
  if (steady != 0) arg.push_back(steady);
  return graph.MakeChecked(Op::kSink, DType::kVoid, sink->src, arg);
}

// The same kernel, alone, whose products may be of TF32.
inline const UOp* WithTf32(Graph& graph, const UOp* sink) {
  constexpr int64_t kOneCopy = 1;
  return graph.MakeChecked(Op::kSink, DType::kVoid, sink->src, {kOneCopy, kTf32Allowed});
}

// The same kernel, alone, with these steady slots (SteadySlots), of which there is one at least.
inline const UOp* WithSteadySlots(Graph& graph, const UOp* sink, int64_t slots) {
  constexpr int64_t kOneCopy = 1;
  return graph.MakeChecked(Op::kSink, DType::kVoid, sink->src,
                           {kOneCopy, AllowsTf32(sink) ? kTf32Allowed : 0, slots});
}

}  // namespace outboard
