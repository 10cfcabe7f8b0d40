// REF=1: an engine that evaluates graphs with the reference interpreter instead of compiling them.
#include <chrono>

#include "base/check.h"
#include "compiler/reference/interpret.h"
#include "worker/engine/engine.h"
#include "worker/executor/failed_node.h"

namespace outboard::worker {
namespace {

class ReferenceEngine final : public Engine {
 public:
  using Engine::Engine;

  std::string kind() const override { return "ref"; }

  absl::StatusOr<std::vector<DeviceArrayPtr>> Run(const GraphId&, const UOp* sink,
                                                  std::vector<DeviceArrayPtr> inputs,
                                                  std::span<const Binding> bindings,
                                                  std::span<const int64_t>) override {
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bindings));
    std::vector<HostTensor> params;
    for (const DeviceArrayPtr& input : inputs) {
      params.push_back({input->dtype, input->dims, std::string(input->bytes(), '\0')});
      OB_RETURN_IF_ERROR(
          input->device().Download(input->address(), input->bytes(), params.back().bytes.data()));
    }
    const auto start = std::chrono::steady_clock::now();
    OB_ASSIGN_OR_RETURN(const std::vector<HostTensor> results, Interpret(sink, params, bindings));
    stats_.device_time_us += std::chrono::duration_cast<std::chrono::microseconds>(
                                 std::chrono::steady_clock::now() - start)
                                 .count();
    std::vector<DeviceArrayPtr> outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      const HostTensor& result = results[i];
      absl::StatusOr<std::shared_ptr<DeviceArray>> array = NewArray(result.dtype, result.dims);
      if (!array.ok()) return AboutNode(array.status(), sink, sink->src[i]);
      OB_RETURN_IF_ERROR(device().Upload((*array)->address(), result.bytes));
      outputs.push_back(*std::move(array));
    }
    return outputs;
  }
};

}  // namespace

std::unique_ptr<Engine> MakeReferenceEngine(std::unique_ptr<runtime::Device> device) {
  return std::make_unique<ReferenceEngine>(std::move(device));
}

}  // namespace outboard::worker
