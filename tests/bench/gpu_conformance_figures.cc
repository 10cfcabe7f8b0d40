#include "tests/bench/gpu_conformance_figures.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "tests/compiler/ptx_run.h"

namespace outboard::bench {
namespace {

using runtime::DeviceBuffer;

// Leaves in `buffers` what the device makes of them.
absl::Status RunOnDevice(runtime::Device& device, const CompiledKernel& kernel,
                         test::Buffers& buffers) {
  const runtime::LoadedKernel loaded = device.Load(kernel);
  OB_RETURN_IF_ERROR(loaded.status());
  std::vector<DeviceBuffer> memory;
  std::vector<runtime::DeviceAddress> addresses;
  for (const std::string& bytes : buffers) {
    OB_ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(static_cast<int64_t>(bytes.size())));
    OB_RETURN_IF_ERROR(device.Upload(buffer.address(), bytes));
    addresses.push_back(buffer.address());
    memory.push_back(std::move(buffer));
  }
  OB_RETURN_IF_ERROR(device.Launch(**loaded, addresses, {}));
  for (size_t i = 0; i < buffers.size(); ++i)
    OB_RETURN_IF_ERROR(
        device.Download(addresses[i], static_cast<int64_t>(buffers[i].size()), buffers[i].data()));
  return absl::OkStatus();
}

// What both leave of the same bytes in buffer 0; a text where one of them refuses the kernel.
struct Results {
  std::string machine, device, refused;
};
Results OnBoth(runtime::Device& device, const CompiledKernel& kernel, const test::Buffers& inputs) {
  test::Buffers on_machine = inputs, on_device = inputs;
  Results results;
  if (const absl::Status status = test::RunOnPtxMachine(kernel, on_machine); !status.ok())
    absl::StrAppend(&results.refused, "the machine: ", status.message());
  if (const absl::Status status = RunOnDevice(device, kernel, on_device); !status.ok())
    absl::StrAppend(&results.refused, results.refused.empty() ? "" : "; ",
                    "the device: ", status.message());
  results.machine = std::move(on_machine[0]);
  results.device = std::move(on_device[0]);
  return results;
}

}  // namespace

absl::StatusOr<Conformance> CompareForms(runtime::Device& device,
                                         const std::vector<ptx::InstructionForm>& forms,
                                         uint64_t seed) {
  Conformance conformance;
  for (const ptx::InstructionForm& form : forms) {
    CompiledKernel kernel;
    kernel.form = CompiledKernel::Form::kPtx;
    kernel.symbol = "k";
    kernel.object = absl::StrCat(ptx::FormHeader(), ptx::FormKernel(form, kernel.symbol));
    kernel.buffer_count = 4;
    kernel.tasks = kernel.blocks[0] = ptx::kFormBlocks;
    kernel.threads[0] = ptx::kFormBlockThreads;
    const Results results = OnBoth(device, kernel, ptx::FormInputs(form, seed));
    ++conformance.compared;
    std::string difference = results.refused.empty()
                                 ? ptx::FormDifference(form, results.machine, results.device)
                                 : absl::StrCat(form.text, ": ", results.refused);
    if (!difference.empty()) conformance.differences.push_back(std::move(difference));
    // A kernel that ended the context ends the comparison: nothing after it would run.
    OB_RETURN_IF_ERROR(device.Synchronize());
  }
  return conformance;
}

absl::StatusOr<Conformance> CompareProducts(runtime::Device& device,
                                            const std::vector<test::HopperCase>& cases) {
  const Target target = CudaTarget("sm_90a", device.properties().compute_units);
  OB_ASSIGN_OR_RETURN(const auto renderer, render::MakePtxRenderer(target));
  Conformance conformance;
  for (const test::HopperCase& one : cases) {
    OB_ASSIGN_OR_RETURN(const program::Program program,
                        MakeHopperProduct(one.product, one.tile, one.epilogue));
    OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                        renderer->Render(program, "k"));
    const Results results = OnBoth(device, kernel, InputsOf(one));
    ++conformance.compared;
    // Bits of sums that are not exact depend on how much a unit cuts off.
    std::string difference = results.refused;
    if (difference.empty() && one.full_digits)
      difference = DifferenceOf(one, {results.device});
    else if (difference.empty() && results.machine != results.device)
      difference = "other bits";
    if (!difference.empty())
      conformance.differences.push_back(absl::StrCat(one.name, ": ", difference));
    OB_RETURN_IF_ERROR(device.Synchronize());
  }
  return conformance;
}

}  // namespace outboard::bench
