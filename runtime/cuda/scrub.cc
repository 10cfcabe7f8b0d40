#include "runtime/cuda/scrub.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"

namespace outboard::cuda {
namespace {

// Values that a thread holds at a time; with addresses and counters they are the 128 registers that
// it has at most. More would be kept in local memory.
constexpr int kScrubValues = 120;

constexpr size_t kCountsBytes = 2 * sizeof(uint32_t);
// A look takes a microsecond or less.
constexpr uint32_t kPolls = 1 << 22;
// Another process's kernel may end while ours waits; then there is room.
constexpr int kTries = 3;

constexpr size_t kPieceBytesMax = size_t{1} << 30;
constexpr size_t kPieceBytesMin = size_t{2} << 20;  // the driver's own pages

// All that the driver gives; what is smaller than its pages it does not map for anybody else.
class FreeMemory {
 public:
  explicit FreeMemory(DriverContext& context) : context_(context) {}
  ~FreeMemory() {
    for (const CUdeviceptr piece : pieces_) context_.api().cuMemFree(piece);
  }

  absl::Status Overwrite(CUstream stream) {
    for (size_t bytes = kPieceBytesMax; bytes >= kPieceBytesMin;) {
      CUdeviceptr piece = 0;
      const CUresult code = context_.api().cuMemAlloc(&piece, bytes);
      if (code == CUDA_ERROR_OUT_OF_MEMORY) {
        bytes /= 2;
        continue;
      }
      if (code != CUDA_SUCCESS) return context_.Check(code, "cuMemAlloc");
      pieces_.push_back(piece);
      OB_CUDA(context_, cuMemsetD8Async, piece, 0, bytes, stream);
    }
    OB_CUDA(context_, cuStreamSynchronize, stream);
    return absl::OkStatus();
  }

 private:
  DriverContext& context_;
  std::vector<CUdeviceptr> pieces_;
};

// One block for each multiprocessor: it takes all of the shared memory, so no two fit on one, and
// none ends before all have begun, so none has two.
absl::Status RunKernel(DriverContext& context, CUstream stream, CUmodule module,
                       CUdeviceptr arrived) {
  CUfunction function = nullptr;
  OB_CUDA(context, cuModuleGetFunction, &function, module, kScrubKernel);
  const auto blocks = static_cast<unsigned>(
      std::max(1, context.Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
  const auto shared = static_cast<unsigned>(
      context.Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  OB_CUDA(context, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
          static_cast<int>(shared));
  OB_CUDA(context, cuMemsetD8Async, arrived, 0, kCountsBytes, stream);
  uint32_t words = shared / 4, count = blocks, polls = kPolls;
  void* params[] = {&arrived, &words, &count, &polls};
  OB_CUDA(context, cuLaunchKernel, function, blocks, 1, 1, kScrubThreads, 1, 1, shared, stream,
          params, nullptr);
  uint32_t counts[2] = {};
  OB_CUDA(context, cuMemcpyDtoHAsync, counts, arrived, kCountsBytes, stream);
  OB_CUDA(context, cuStreamSynchronize, stream);
  if (counts[0] == blocks && counts[1] == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(context.name(), " is not wiped: of ", blocks,
                                             " blocks, one for each ", "multiprocessor, ",
                                             counts[1], " did not meet the others"));
}

}  // namespace

// Every register is written by every thread: a machine that executes the text itself keeps what was
// in the others. The values cross a barrier: volatile loads cannot come after it, nor volatile
// stores before it, so that they all have registers at that moment. The wait for the other blocks
// is bounded, by some seconds: where one of them cannot begin, a block says so and ends.
std::string ScrubText() {
  std::string text = absl::Substitute(R"(.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 shared_words[];
.visible .entry $0(.param .u64 arrived, .param .u32 words, .param .u32 blocks, .param .u32 polls)
.reqntid $1, 1, 1
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b32 %v<$2>;
  .reg .b64 %rd<1>;
  ld.param.u32 %r0, [words];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, shared_words;
  mov.u32 %r3, 0;
  mov.u32 %r4, %r1;
  mov.u32 %r6, 0;
  mov.u32 %r7, 0;
  mov.u32 %r8, 0;
  mov.u64 %rd0, 0;
  setp.ne.u32 %p1, %r3, %r3;
FILL:
  setp.ge.u32 %p0, %r4, %r0;
  @%p0 bra FILLED;
  shl.b32 %r5, %r4, 2;
  add.u32 %r5, %r2, %r5;
  st.volatile.shared.u32 [%r5], %r3;
  add.u32 %r4, %r4, $1;
  bra FILL;
FILLED:
  bar.sync 0;
  shl.b32 %r5, %r1, 2;
  add.u32 %r5, %r2, %r5;
)",
                                      kScrubKernel, kScrubThreads, kScrubValues);
  for (int i = 0; i < kScrubValues; ++i)
    absl::StrAppend(&text, "  ld.volatile.shared.u32 %v", i, ", [%r5];\n");
  absl::StrAppend(&text, "  bar.sync 0;\n");
  for (int i = 0; i < kScrubValues; ++i)
    absl::StrAppend(&text, "  st.volatile.shared.u32 [%r5], %v", i, ";\n");
  absl::StrAppend(&text, R"(  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra DONE;
  ld.param.u64 %rd0, [arrived];
  ld.param.u32 %r6, [blocks];
  atom.global.add.u32 %r7, [%rd0], 1;
  ld.param.u32 %r8, [polls];
WAIT:
  atom.global.add.u32 %r7, [%rd0], 0;
  sub.u32 %r8, %r8, 1;
  setp.ge.u32 %p0, %r7, %r6;
  setp.eq.u32 %p1, %r8, 0;
  or.pred %p0, %p0, %p1;
  @!%p0 bra WAIT;
  setp.ge.u32 %p0, %r7, %r6;
  @%p0 bra DONE;
  atom.global.add.u32 %r7, [%rd0+4], 1;
DONE:
  ret;
}
)");
  return text;
}

absl::Status Scrub(DriverContext& context, CUstream stream) {
  {
    FreeMemory memory(context);
    if (absl::Status status = memory.Overwrite(stream); !status.ok()) return status;
  }
  const std::string text = ScrubText();
  CUmodule module = nullptr;
  OB_CUDA(context, cuModuleLoadDataEx, &module, text.c_str(), 0, nullptr, nullptr);
  CUdeviceptr arrived = 0;
  absl::Status status =
      context.Check(context.api().cuMemAlloc(&arrived, kCountsBytes), "cuMemAlloc");
  if (status.ok()) {
    int tries = 0;
    do status = RunKernel(context, stream, module, arrived);
    while (absl::IsUnavailable(status) && ++tries < kTries);
  }
  if (arrived != 0) context.api().cuMemFree(arrived);
  context.api().cuModuleUnload(module);
  return status;
}

}  // namespace outboard::cuda
