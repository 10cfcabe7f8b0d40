#include "runtime/cuda/launch_graph.h"

#include <cstring>
#include <utility>

#include "runtime/cuda/tensor_maps.h"

namespace outboard::cuda {
namespace {

// The pointers that the driver reads a kernel's parameters through, and the rest of a node.
CUDA_KERNEL_NODE_PARAMS_v2 ParamsOf(const DriverContext& context, const BoundLaunch& launch,
                                    std::vector<void*>& pointers) {
  const CudaKernel& kernel = *launch.kernel;
  launch.PointTo(pointers);
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

bool SameMaps(const std::vector<CUtensorMap>& a, const std::vector<CUtensorMap>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

}  // namespace

absl::Status BoundLaunch::EncodeMaps(DriverContext& context) {
  if (kernel == nullptr || kernel->maps.empty()) {
    maps.clear();
    encoded_kernel_ = 0;
    return absl::OkStatus();
  }
  const bool same = encoded_kernel_ == kernel->serial;
  encoded_kernel_ = 0;  // should what follows fail
  maps.resize(kernel->maps.size());
  encoded_buffers_.resize(maps.size());
  for (size_t m = 0; m < maps.size(); ++m) {
    const CUdeviceptr buffer = arguments[static_cast<size_t>(kernel->maps[m].slot)];
    if (same && encoded_buffers_[m] == buffer) continue;
    if (absl::Status status = EncodeMap(context, kernel->maps[m], buffer, &maps[m]); !status.ok())
      return status;
    encoded_buffers_[m] = buffer;
  }
  encoded_kernel_ = kernel->serial;
  return absl::OkStatus();
}

void BoundLaunch::PointTo(std::vector<void*>& pointers) const {
  pointers.clear();
  if (kernel->copies > 1) {  // one parameter has all buffers, another one all views
    const auto buffers = static_cast<size_t>(kernel->buffer_count());
    if (buffers > 0) pointers.push_back(const_cast<CUdeviceptr*>(arguments.data()));
    if (kernel->reads_vars) pointers.push_back(const_cast<CUdeviceptr*>(&arguments[buffers]));
    if (!maps.empty()) pointers.push_back(const_cast<CUtensorMap*>(maps.data()));
    return;
  }
  for (const CUdeviceptr& argument : arguments)
    pointers.push_back(const_cast<CUdeviceptr*>(&argument));
  for (const CUtensorMap& map : maps) pointers.push_back(const_cast<CUtensorMap*>(&map));
}

// The modules are unloaded after this, when the member that holds them is destroyed.
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
      waits(launch.kernel->waits),
      arguments(launch.arguments),
      maps(launch.maps) {}

bool LaunchGraph::Node::Is(const BoundLaunch& launch) const {
  const CudaKernel& kernel = *launch.kernel;
  return function == kernel.function && arguments == launch.arguments &&
         SameMaps(maps, launch.maps) && blocks == kernel.blocks && threads == kernel.threads &&
         shared_bytes == kernel.shared_bytes && module == kernel.module;
}

void LaunchGraph::DropLater() {
  if (owned_ != nullptr) {  // nodes are of a graph
    for (Node& node : nodes_) owned_->modules.push_back(std::move(node.module));
    left_->Keep(std::move(owned_));
  }
  nodes_.clear();
  handles_.clear();
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
  if (status.ok())
    status = context_->Check(context_->api().cuGraphLaunch(owned_->exec, stream), "cuGraphLaunch");
  refusals_ = status.ok() ? 0 : refusals_ + 1;
  if (!status.ok()) DropLater();
  return status;
}

// One after the other, as on a stream: a launch may read what the one before it has written.
absl::Status LaunchGraph::Make(std::span<const BoundLaunch> launches) {
  DropLater();
  owned_ = std::make_shared<Owned>(context_);
  OB_CUDA(*context_, cuGraphCreate, &owned_->graph, 0);
  overlaps_ = overlaps_ && context_->api().cuGraphAddDependencies2 != nullptr;
  for (const BoundLaunch& launch : launches) {
    absl::Status status = AddNode(launch, overlaps_ && launch.kernel->waits && !handles_.empty());
    if (!status.ok()) return status;
  }
  const CUresult code =
      context_->api().cuGraphInstantiateWithFlags(&owned_->exec, owned_->graph, 0);
  if (code == CUDA_SUCCESS) return absl::OkStatus();
  overlaps_ = false;  // it may be that: the next graph does without
  return context_->Check(code, "cuGraphInstantiateWithFlags");
}

absl::Status LaunchGraph::AddNode(const BoundLaunch& launch, bool overlaps) {
  std::vector<void*> pointers;
  const CUDA_KERNEL_NODE_PARAMS_v2 params = ParamsOf(*context_, launch, pointers);
  const size_t after = handles_.empty() || overlaps ? 0 : 1;
  CUgraphNode handle = nullptr;
  OB_CUDA(*context_, cuGraphAddKernelNode, &handle, owned_->graph,
          after == 0 ? nullptr : &handles_.back(), after, &params);
  if (overlaps) {
    const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                  .to_port = 0,
                                  .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC,
                                  .reserved = {}};
    const CUresult code = context_->api().cuGraphAddDependencies2(
        owned_->graph, &handles_.back(), &handle, &edge, 1);
    if (code != CUDA_SUCCESS) {
      overlaps_ = false;
      return context_->Check(code, "cuGraphAddDependencies");
    }
  }
  handles_.push_back(handle);
  nodes_.emplace_back(launch);
  owned_->modules.push_back(launch.kernel->module);
  return absl::OkStatus();
}

// Launches of the graph that are queued already keep their parameters.
absl::Status LaunchGraph::Patch(std::span<const BoundLaunch> launches) {
  std::vector<void*> pointers;
  for (size_t i = 0; i < launches.size(); ++i) {
    // A function's handle may be used again, but not while its module lives, which the node holds.
    if (nodes_[i].Is(launches[i])) continue;
    Node now(launches[i]);
    if (now.waits != nodes_[i].waits) return Make(launches);  // the edge to it is of another type
    const CUDA_KERNEL_NODE_PARAMS_v2 params = ParamsOf(*context_, launches[i], pointers);
    OB_CUDA(*context_, cuGraphExecKernelNodeSetParams, owned_->exec, handles_[i], &params);
    if (now.module != nodes_[i].module) left_->Keep(std::move(nodes_[i].module));
    nodes_[i] = std::move(now);
  }
  return absl::OkStatus();
}

}  // namespace outboard::cuda
