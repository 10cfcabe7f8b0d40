// REF=1: the reference interpreter in an executor's place of a compiler.
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "compiler/reference/interpret.h"
#include "worker/engine/engine.h"
#include "worker/executor/failed_node.h"

namespace outboard::worker {
namespace {

class ReferenceEngine final : public Engine {
 public:
  explicit ReferenceEngine(int64_t memory_bytes_max) : memory_(memory_bytes_max) {}

  std::string kind() const override { return "ref"; }

  absl::StatusOr<std::vector<DeviceArrayPtr>> Run(const GraphId&, const UOp* sink,
                                                  std::vector<DeviceArrayPtr> inputs,
                                                  std::span<const Binding> bindings,
                                                  std::span<const int64_t>) override {
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bindings));
    std::vector<HostTensor> params;
    for (const DeviceArrayPtr& input : inputs)
      params.push_back({input->dtype, input->dims, std::string(input->data(), input->bytes())});
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
      std::memcpy((*array)->data(), result.bytes.data(), result.bytes.size());
      outputs.push_back(*std::move(array));
    }
    return outputs;
  }

 private:
  cpu::Allocator& memory() override { return memory_; }

  cpu::Allocator memory_;
};

}  // namespace

std::unique_ptr<Engine> MakeReferenceEngine(int64_t memory_bytes_max) {
  return std::make_unique<ReferenceEngine>(memory_bytes_max);
}

}  // namespace outboard::worker
