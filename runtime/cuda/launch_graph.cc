#include "runtime/cuda/launch_graph.h"

#include <utility>

namespace outboard::cuda {
namespace {

// The pointers that the driver reads a kernel's parameters through, and the rest of a node.
CUDA_KERNEL_NODE_PARAMS_v2 ParamsOf(const DriverContext& context, const BoundLaunch& launch,
                                    std::vector<void*>& pointers) {
  const CudaKernel& kernel = *launch.kernel;
  pointers.clear();
  for (const CUdeviceptr& argument : launch.arguments)
    pointers.push_back(const_cast<CUdeviceptr*>(&argument));
  return {.function = kernel.function,
          .grid_x = kernel.blocks[0],
          .grid_y = kernel.blocks[1],
          .grid_z = kernel.blocks[2],
          .block_x = kernel.threads[0],
          .block_y = kernel.threads[1],
          .block_z = kernel.threads[2],
          .shared_bytes = kernel.shared_bytes,
          .params = pointers.data(),
          .extra = nullptr,
          .kernel = nullptr,
          .context = context.context()};
}

}  // namespace

LaunchGraph::Owned::~Owned() {
  if (!context->Enter().ok()) return;  // the process ends, and all with it
  if (exec != nullptr) context->api().cuGraphExecDestroy(exec);
  if (graph != nullptr) context->api().cuGraphDestroy(graph);
}

void LaunchGraph::DropLater() {
  for (Node& node : nodes_) left_->Keep(std::move(node.module));
  nodes_.clear();
  if (owned_ != nullptr) left_->Keep(std::move(owned_));
  owned_ = nullptr;
}

absl::Status LaunchGraph::Queue(std::span<const BoundLaunch> launches, CUstream stream) {
  if (launches.empty()) return absl::OkStatus();
  absl::Status status = absl::OkStatus();
  if (owned_ != nullptr && nodes_.size() == launches.size()) {
    status = Patch(launches);
    // Of a function that the graph cannot take, say: a new one can.
    if (!status.ok() && context_->health().ok()) status = Make(launches);
  } else {
    status = Make(launches);
  }
  if (!status.ok()) {
    DropLater();
    return status;
  }
  OB_CUDA(*context_, cuGraphLaunch, owned_->exec, stream);
  return absl::OkStatus();
}

// One after the other, as on a stream: a launch may read what the one before it has written.
absl::Status LaunchGraph::Make(std::span<const BoundLaunch> launches) {
  DropLater();
  owned_ = std::make_shared<Owned>(context_);
  ++made_;
  OB_CUDA(*context_, cuGraphCreate, &owned_->graph, 0);
  std::vector<void*> pointers;
  for (const BoundLaunch& launch : launches) {
    const CUDA_KERNEL_NODE_PARAMS_v2 params = ParamsOf(*context_, launch, pointers);
    Node node{nullptr, launch.kernel->module, launch.kernel->function, launch.arguments};
    OB_CUDA(*context_, cuGraphAddKernelNode, &node.node, owned_->graph,
            nodes_.empty() ? nullptr : &nodes_.back().node, nodes_.empty() ? 0 : 1, &params);
    nodes_.push_back(std::move(node));
  }
  OB_CUDA(*context_, cuGraphInstantiateWithFlags, &owned_->exec, owned_->graph, 0);
  return absl::OkStatus();
}

// Launches of the graph that are queued already keep their parameters.
absl::Status LaunchGraph::Patch(std::span<const BoundLaunch> launches) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < launches.size(); ++i) {
    Node& node = nodes_[i];
    // A function's handle may be used again, but not while its module lives, which the node holds.
    if (node.function == launches[i].kernel->function && node.arguments == launches[i].arguments)
      continue;
    const CUDA_KERNEL_NODE_PARAMS_v2 params = ParamsOf(*context_, launches[i], pointers);
    OB_CUDA(*context_, cuGraphExecKernelNodeSetParams, owned_->exec, node.node, &params);
    ++patched_;
    if (node.module != launches[i].kernel->module)
      left_->Keep(std::exchange(node.module, launches[i].kernel->module));
    node.function = launches[i].kernel->function;
    node.arguments = launches[i].arguments;
  }
  return absl::OkStatus();
}

}  // namespace outboard::cuda
