// REF=1: an engine that evaluates graphs with the reference interpreter instead of compiling them.
#include <chrono>

#include "base/check.h"
#include "compiler/failed_node.h"
#include "compiler/ir/accessors.h"
#include "compiler/reference/interpret.h"
#include "compiler/reference/interpret_group.h"
#include "worker/engine/engine.h"

namespace outboard::worker {
namespace {

class ReferenceEngine final : public Engine {
 public:
  using Engine::Engine;

  std::string kind() const override { return "ref"; }

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId&, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings,
                                                      std::span<const int64_t>) override {
    OB_ASSIGN_OR_RETURN(const std::vector<Binding> bound, WithRank(bindings));
    OB_RETURN_IF_ERROR(CheckInputs(sink, inputs, bound));
    absl::StatusOr<std::vector<DeviceArrayPtr>> results = ExecuteChecked(sink, inputs, bindings);
    OB_RETURN_IF_ERROR(EndGroupIfFailed(results.status()));
    return results;
  }

 private:
  absl::StatusOr<std::vector<DeviceArrayPtr>> ExecuteChecked(
      const UOp* sink, const std::vector<DeviceArrayPtr>& inputs,
      std::span<const Binding> bindings) {
    std::vector<HostTensor> params;
    for (const DeviceArrayPtr& input : inputs) {
      params.push_back({input->dtype, input->dims, std::string(input->bytes(), '\0')});
      OB_RETURN_IF_ERROR(
          input->device().Download(input->address(), input->bytes(), params.back().bytes.data()));
    }
    const auto start = std::chrono::steady_clock::now();
    OB_ASSIGN_OR_RETURN(const std::vector<HostTensor> results,
                        group() == nullptr
                            ? Interpret(sink, params, bindings)
                            : InterpretRank(sink, group()->member().rank, params, bindings,
                                            [&](const UOp* node, const HostTensor& mine) {
                                              return Gather(node, mine);
                                            }));
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

  // What the group of a collective has.
  absl::StatusOr<std::vector<HostTensor>> Gather(const UOp* node, const HostTensor& mine) {
    const CollectiveOf of(node);
    std::string all(mine.bytes.size() * static_cast<size_t>(of.count()), '\0');
    const collective::BlockTransfer transfer{collective::TransferPattern::kAllGather,
                                             of.count(),
                                             of.stride(),
                                             0,
                                             mine.bytes,
                                             {all.data(), all.size()}};
    OB_ASSIGN_OR_RETURN(const collective::TransferId id, group()->Start({&transfer, 1}));
    OB_RETURN_IF_ERROR(group()->Wait(id));
    std::vector<HostTensor> tensors;
    for (int64_t place = 0; place < of.count(); ++place)
      tensors.push_back(
          {mine.dtype, mine.dims,
           all.substr(static_cast<size_t>(place) * mine.bytes.size(), mine.bytes.size())});
    return tensors;
  }
};

}  // namespace

std::unique_ptr<Engine> MakeReferenceEngine(std::unique_ptr<runtime::Device> device) {
  return std::make_unique<ReferenceEngine>(std::move(device));
}

}  // namespace outboard::worker
