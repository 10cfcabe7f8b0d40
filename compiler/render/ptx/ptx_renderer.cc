#include "compiler/render/ptx/ptx_renderer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/optimize/limits.h"
#include "compiler/render/launch_shape.h"
#include "compiler/render/ptx/join_accesses.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {
namespace {

// The processors that code is made for, with the oldest version of PTX that knows what is used of
// them: the older, the more drivers accept the text.
struct Processor {
  const char *arch, *ptx;
};
constexpr Processor kProcessors[] = {
    {"sm_80", "7.5"},
    {"sm_89", "7.8"},
    {"sm_90", "8.0"},
    {"sm_90a", "8.0"},
};
constexpr char kPtxOfSmallProducts[] = "8.4";  // mma.sync of 8-bit floats
constexpr char kFeatureOfSmallProducts[] = "ptx84";  // of targets (compiler/target.h)

bool HasSmallProducts(const program::Program& program) {
  return std::ranges::any_of(program.code, [&](const auto& i) {
    return i.code == program::Code::kMma && ByteWidth(program.code[i.src[0]].dtype) == 1;
  });
}

class Renderer final : public GpuRenderer {
 public:
  Renderer(Target target, int64_t columns_max, const char* ptx)
      : target_(std::move(target)), columns_max_(columns_max), ptx_(ptx) {}

  absl::StatusOr<CompiledKernel> Render(const program::Program& program,
                                        const std::string& symbol,
                                        std::string* /*ir*/) const override {
    CompiledKernel out = LaunchShapeOf(program, symbol, CompiledKernel::Form::kPtx, columns_max_);
    // Stages of products fill the memory of a multiprocessor, and long rows: their launches ask for
    // it.
    const int64_t shared_bytes_max = target_.block_bytes_max();
    out.maps = program.maps;
    if (const int64_t bytes = ParameterBytes(program.copies, program.buffer_count,
                                             static_cast<int64_t>(program.maps.size()));
        bytes > limits::kParameterBytesMax) {
      const std::string need =
          absl::StrCat("a kernel of ", program.buffer_count, " buffers in ", program.copies,
                       program.copies > 1 ? " copies" : " copy", " has ", bytes,
                       " bytes of parameters; a launch has ", limits::kParameterBytesMax);
      if (program.copies > 1) return absl::OutOfRangeError(need);
      return absl::ResourceExhaustedError(need);
    }
    if (out.threads[0] > kCudaBlockThreadsMax || out.shared_bytes > shared_bytes_max ||
        out.blocks[1] > kGridRowsMax)
      return absl::ResourceExhaustedError(absl::StrCat(
          "device ", target_.name, " has no room for ", out.tasks, " blocks of ", out.threads[0],
          " threads with ", out.shared_bytes, " bytes; a block may have ", kCudaBlockThreadsMax,
          " threads and ", shared_bytes_max, " bytes"));
    const bool small_products = HasSmallProducts(program);
    if (small_products && target_.Lacks(kFeatureOfSmallProducts))
      return absl::UnimplementedError(
          absl::StrCat("device ", target_.name, ": its driver does not know PTX ",
                       kPtxOfSmallProducts, ", which products of 8-bit floats by mma.sync need"));
    const program::Program joined = JoinAccesses(program);
    OB_ASSIGN_OR_RETURN(const std::string kernel,
                        PtxPrinter(joined, target_, GridOf(program, columns_max_)).Run(symbol));
    out.object = absl::StrCat(".version ", small_products ? kPtxOfSmallProducts : ptx_,
                              "\n.target ", target_.arch, "\n.address_size 64\n", kernel);
    return out;
  }

 private:
  const Target target_;
  const int64_t columns_max_;
  const char* const ptx_;  // version
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRenderer>> MakePtxRenderer(Target target,
                                                             int64_t columns_max) {
  if (target.kind != TargetKind::kCuda)
    return absl::InvalidArgumentError("a target of another kind than CUDA");
  const auto* const processor =
      std::ranges::find_if(kProcessors, [&](const Processor& p) { return target.arch == p.arch; });
  if (processor == std::end(kProcessors))
    return absl::InvalidArgumentError(absl::StrCat("no code for GPUs of kind \"", target.arch,
                                                   "\"; there is for sm_80, sm_89, sm_90, sm_90a"));
  return std::make_unique<Renderer>(std::move(target), columns_max, processor->ptx);
}

}  // namespace outboard::render
