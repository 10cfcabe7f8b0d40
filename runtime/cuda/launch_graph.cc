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

LaunchGraph::Node::Node(const BoundLaunch& launch)
    : module(launch.kernel->module),
      function(launch.kernel->function),
      blocks(launch.kernel->blocks),
      threads(launch.kernel->threads),
      shared_bytes(launch.kernel->shared_bytes),
      arguments(launch.arguments) {}

void LaunchGraph::DropLater() {
  for (Node& node : nodes_) left_->Keep(std::move(node.module));
  nodes_.clear();
  handles_.clear();
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
    CUgraphNode handle = nullptr;
    OB_CUDA(*context_, cuGraphAddKernelNode, &handle, owned_->graph,
            handles_.empty() ? nullptr : &handles_.back(), handles_.empty() ? 0 : 1, &params);
    handles_.push_back(handle);
    nodes_.emplace_back(launch);
  }
  OB_CUDA(*context_, cuGraphInstantiateWithFlags, &owned_->exec, owned_->graph, 0);
  return absl::OkStatus();
}

// Launches of the graph that are queued already keep their parameters.
absl::Status LaunchGraph::Patch(std::span<const BoundLaunch> launches) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < launches.size(); ++i) {
    // A function's handle may be used again, but not while its module lives, which the node holds.
    Node now(launches[i]);
    if (now == nodes_[i]) continue;
    const CUDA_KERNEL_NODE_PARAMS_v2 params = ParamsOf(*context_, launches[i], pointers);
    OB_CUDA(*context_, cuGraphExecKernelNodeSetParams, owned_->exec, handles_[i], &params);
    ++patched_;
    if (now.module != nodes_[i].module) left_->Keep(std::move(nodes_[i].module));
    nodes_[i] = std::move(now);
  }
  return absl::OkStatus();
}

}  // namespace outboard::cuda
