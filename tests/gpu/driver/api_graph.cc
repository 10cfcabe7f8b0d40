// Graphs: nodes, capture, instantiation, patches, launches.
//
// An instantiated graph is a copy: later changes of the graph, of arguments or of host structures
// do not reach it. Each launch runs the nodes in another order that their dependencies allow.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/gpu/driver/entry.h"

using namespace outboard::fake_cuda;  // NOLINT: entry points are C

namespace {

// Those that live.
struct Graphs {
  std::mutex mutex;
  std::set<const FakeGraph*> graphs;
  std::set<const FakeGraphExec*> execs;

  static Graphs& Get() {
    static auto* const all = new Graphs;
    return *all;
  }
};
FakeGraph* NewGraph() {
  FakeGraph* const graph = FakeDevice::Get().Own(std::make_unique<FakeGraph>());
  std::lock_guard<std::mutex> lock(Graphs::Get().mutex);
  Graphs::Get().graphs.insert(graph);
  return graph;
}

// Graph handles are owned one by one; nodes by their graph.
Result Add(void* graph_handle, void** node_handle, void* const* after, size_t count,
           GraphNode work) {
  FAKE_READY();
  auto* graph = static_cast<FakeGraph*>(graph_handle);
  FakeDevice& device = FakeDevice::Get();
  if (!device.Owns(graph)) return kInvalidHandle;
  auto node = std::make_unique<GraphNode>(std::move(work));
  for (size_t i = 0; i < count; ++i) {
    const bool known = std::any_of(graph->nodes.begin(), graph->nodes.end(),
                                   [&](const auto& each) { return each.get() == after[i]; });
    if (!known) return kInvalidValue;
    node->after.push_back(static_cast<GraphNode*>(after[i]));
  }
  if (node_handle != nullptr) *node_handle = node.get();
  graph->nodes.push_back(std::move(node));
  return kSuccess;
}

Result KernelNode(const KernelNodeParams& params, GraphNode* work) {
  auto* function = static_cast<FakeFunction*>(params.function);
  if (function == nullptr) return kInvalidValue;
  work->kind = GraphNode::kKernel;
  work->function = function;
  for (int i = 0; i < 3; ++i) {
    work->launch.grid[i] = params.grid[i];
    work->launch.block[i] = params.block[i];
  }
  work->launch.shared_bytes = params.shared_bytes;
  const Result result = CheckLaunch(*function, work->launch);
  if (result != kSuccess) return result;
  return GatherArguments(*function, params.arguments, params.extra, &work->launch.parameters);
}

Result CopyNode(const Copy3D& params, GraphNode* work) {
  if (params.height > 1 || params.depth > 1) return kNotSupported;
  work->kind = GraphNode::kCopy;
  work->bytes = params.width_bytes;
  work->source_host = params.source_type == kMemoryHost;
  work->target_host = params.target_type == kMemoryHost;
  work->source =
      (work->source_host ? reinterpret_cast<uint64_t>(params.source_host) : params.source_device) +
      params.source_x;
  work->target =
      (work->target_host ? reinterpret_cast<uint64_t>(params.target_host) : params.target_device) +
      params.target_x;
  return kSuccess;
}

Result FillNode(const MemsetNodeParams& params, GraphNode* work) {
  if (params.element_bytes != 1 && params.element_bytes != 2 && params.element_bytes != 4)
    return kInvalidValue;
  work->kind = GraphNode::kFill;
  work->target = params.target;
  work->value = params.value;
  work->element_bytes = static_cast<int>(params.element_bytes);
  work->width = params.width;
  work->height = std::max<size_t>(params.height, 1);
  work->pitch = params.pitch;
  return kSuccess;
}

// Replaces what a node of an instantiated graph does; its kind and its function's module stay.
Result Patch(void* exec_handle, void* node_handle, GraphNode work) {
  auto* exec = static_cast<FakeGraphExec*>(exec_handle);
  FakeDevice& device = FakeDevice::Get();
  if (!device.Owns(exec)) return kInvalidHandle;
  const auto it = exec->position.find(static_cast<GraphNode*>(node_handle));
  if (it == exec->position.end()) return kInvalidValue;
  GraphNode& node = exec->nodes[it->second];
  if (node.kind != work.kind) return kInvalidValue;
  work.launch.cluster = node.launch.cluster;
  work.launch.dependent = node.launch.dependent;
  node = std::move(work);
  return kSuccess;
}

Result Instantiate(void** exec_handle, FakeGraph* graph) {
  auto exec = std::make_unique<FakeGraphExec>();
  for (const auto& node : graph->nodes) {
    exec->position[node.get()] = exec->nodes.size();
    exec->nodes.push_back(*node);
    exec->nodes.back().after.clear();
  }
  for (const auto& node : graph->nodes) {
    std::vector<size_t> after;
    for (const GraphNode* earlier : node->after) {
      const auto it = exec->position.find(earlier);
      if (it == exec->position.end()) return kInvalidValue;
      after.push_back(it->second);
    }
    exec->after.push_back(std::move(after));
  }
  FakeGraphExec* const owned = FakeDevice::Get().Own(std::move(exec));
  std::lock_guard<std::mutex> lock(Graphs::Get().mutex);
  Graphs::Get().execs.insert(owned);
  *exec_handle = owned;
  return kSuccess;
}

// Some order in which all nodes may run; empty if there is none.
std::vector<size_t> SomeOrder(const FakeGraphExec& exec) {
  static std::mt19937_64 random(7);
  std::vector<size_t> order, ready;
  std::vector<size_t> missing(exec.nodes.size());
  std::vector<std::vector<size_t>> next(exec.nodes.size());
  for (size_t i = 0; i < exec.nodes.size(); ++i) {
    missing[i] = exec.after[i].size();
    for (const size_t earlier : exec.after[i]) next[earlier].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const size_t picked = random() % ready.size();
    const size_t node = ready[picked];
    ready.erase(ready.begin() + static_cast<long>(picked));
    order.push_back(node);
    for (const size_t later : next[node])
      if (--missing[later] == 0) ready.push_back(later);
  }
  if (order.size() != exec.nodes.size()) order.clear();
  return order;
}

}  // namespace

bool outboard::fake_cuda::IsInAGraph(const FakeModule& module) {
  const auto has = [&](const GraphNode& node) {
    return node.kind == GraphNode::kKernel && node.function->module == &module;
  };
  std::lock_guard<std::mutex> lock(Graphs::Get().mutex);
  for (const FakeGraph* graph : Graphs::Get().graphs)
    for (const auto& node : graph->nodes)
      if (has(*node)) return true;
  for (const FakeGraphExec* exec : Graphs::Get().execs)
    if (std::any_of(exec->nodes.begin(), exec->nodes.end(), has)) return true;
  return false;
}

FAKE_API cuGraphCreate(void** graph, unsigned flags) {
  FAKE_READY();
  *graph = NewGraph();
  return kSuccess;
}
FAKE_API cuGraphDestroy(void* graph) {
  FAKE_READY();
  {
    std::lock_guard<std::mutex> lock(Graphs::Get().mutex);
    Graphs::Get().graphs.erase(static_cast<FakeGraph*>(graph));
  }
  return FakeDevice::Get().Drop(static_cast<FakeGraph*>(graph)) ? kSuccess : kInvalidHandle;
}
FAKE_API cuGraphAddKernelNode_v2(void** node, void* graph, void* const* after, size_t count,
                                 const KernelNodeParams* params) {
  FAKE_READY();
  GraphNode work;
  const Result result = KernelNode(*params, &work);
  return result != kSuccess ? result : Add(graph, node, after, count, std::move(work));
}
FAKE_API cuGraphAddKernelNode(void** node, void* graph, void* const* after, size_t count,
                              const KernelNodeParams* params) {
  return cuGraphAddKernelNode_v2(node, graph, after, count, params);
}
FAKE_API cuGraphAddMemcpyNode(void** node, void* graph, void* const* after, size_t count,
                              const Copy3D* params, void* context) {
  GraphNode work;
  const Result result = CopyNode(*params, &work);
  return result != kSuccess ? result : Add(graph, node, after, count, std::move(work));
}
FAKE_API cuGraphAddMemsetNode(void** node, void* graph, void* const* after, size_t count,
                              const MemsetNodeParams* params, void* context) {
  GraphNode work;
  const Result result = FillNode(*params, &work);
  return result != kSuccess ? result : Add(graph, node, after, count, std::move(work));
}
FAKE_API cuGraphAddEmptyNode(void** node, void* graph, void* const* after, size_t count) {
  return Add(graph, node, after, count, GraphNode());
}
FAKE_API cuGraphAddHostNode(void** node, void* graph, void* const* after, size_t count,
                            const HostNodeParams* params) {
  GraphNode work;
  work.kind = GraphNode::kHost;
  work.host = [function = params->function, data = params->data] { function(data); };
  return Add(graph, node, after, count, std::move(work));
}
FAKE_API cuGraphAddDependencies(void* graph_handle, void* const* from, void* const* to,
                                size_t count) {
  FAKE_READY();
  if (!FakeDevice::Get().Owns(static_cast<FakeGraph*>(graph_handle))) return kInvalidHandle;
  for (size_t i = 0; i < count; ++i)
    static_cast<GraphNode*>(to[i])->after.push_back(static_cast<GraphNode*>(from[i]));
  return kSuccess;
}
// An edge from where a kernel lets its dependents start: they may run before it is done.
FAKE_API cuGraphAddDependencies_v2(void* graph_handle, void* const* from, void* const* to,
                                   const EdgeData* edges, size_t count) {
  FAKE_READY();
  if (!FakeDevice::Get().Owns(static_cast<FakeGraph*>(graph_handle))) return kInvalidHandle;
  for (size_t i = 0; i < count; ++i) {
    auto* const before = static_cast<GraphNode*>(from[i]);
    auto* const after = static_cast<GraphNode*>(to[i]);
    if (edges != nullptr && edges[i].type != 0) {
      if (edges[i].type != kEdgeProgrammatic || edges[i].from_port != kEdgeProgrammatic ||
          before->kind != GraphNode::kKernel || after->kind != GraphNode::kKernel)
        return kInvalidValue;
      after->launch.dependent = true;
    }
    after->after.push_back(before);
  }
  return kSuccess;
}
// CUDA's second version has edge data before the count; none of it is known here.
FAKE_API cuGraphGetNodes(void* graph_handle, void** nodes, size_t* count) {
  FAKE_READY();
  auto* graph = static_cast<FakeGraph*>(graph_handle);
  if (!FakeDevice::Get().Owns(graph)) return kInvalidHandle;
  for (size_t i = 0; nodes != nullptr && i < std::min(*count, graph->nodes.size()); ++i)
    nodes[i] = graph->nodes[i].get();
  *count = graph->nodes.size();
  return kSuccess;
}
// CUgraphNodeType: kernel 0, memcpy 1, memset 2, host 3, graph 4, empty 5.
FAKE_API cuGraphNodeGetType(void* node, int* type) {
  switch (static_cast<GraphNode*>(node)->kind) {
    case GraphNode::kKernel: *type = 0; break;
    case GraphNode::kCopy: *type = 1; break;
    case GraphNode::kFill: *type = 2; break;
    case GraphNode::kHost: *type = 3; break;
    case GraphNode::kGraph: *type = 4; break;
    default: *type = 5; break;
  }
  return kSuccess;
}
FAKE_API cuGraphKernelNodeSetAttribute(void* node, int attribute, const void* value) {
  FAKE_READY();
  auto* kernel = static_cast<GraphNode*>(node);
  if (kernel->kind != GraphNode::kKernel) return kInvalidHandle;
  if (attribute != kAttributeCluster) return kSuccess;
  std::memcpy(kernel->launch.cluster.data(), value, sizeof(kernel->launch.cluster));
  return kSuccess;
}

FAKE_API cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) {
  FAKE_READY();
  auto* from = static_cast<FakeGraph*>(graph);
  if (!FakeDevice::Get().Owns(from)) return kInvalidHandle;
  return Instantiate(exec, from);
}
FAKE_API cuGraphInstantiate_v2(void** exec, void* graph, void** error_node, char* log,
                               size_t log_bytes) {
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
FAKE_API cuGraphExecDestroy(void* exec) {
  FAKE_READY();
  {
    std::lock_guard<std::mutex> lock(Graphs::Get().mutex);
    Graphs::Get().execs.erase(static_cast<FakeGraphExec*>(exec));
  }
  return FakeDevice::Get().Drop(static_cast<FakeGraphExec*>(exec)) ? kSuccess : kInvalidHandle;
}
FAKE_API cuGraphExecKernelNodeSetParams_v2(void* exec, void* node, const KernelNodeParams* params) {
  FAKE_READY();
  GraphNode work;
  const Result result = KernelNode(*params, &work);
  return result != kSuccess ? result : Patch(exec, node, std::move(work));
}
FAKE_API cuGraphExecKernelNodeSetParams(void* exec, void* node, const KernelNodeParams* params) {
  return cuGraphExecKernelNodeSetParams_v2(exec, node, params);
}
FAKE_API cuGraphExecMemcpyNodeSetParams(void* exec, void* node, const Copy3D* params,
                                        void* context) {
  FAKE_READY();
  GraphNode work;
  const Result result = CopyNode(*params, &work);
  return result != kSuccess ? result : Patch(exec, node, std::move(work));
}
FAKE_API cuGraphExecMemsetNodeSetParams(void* exec, void* node, const MemsetNodeParams* params,
                                        void* context) {
  FAKE_READY();
  GraphNode work;
  const Result result = FillNode(*params, &work);
  return result != kSuccess ? result : Patch(exec, node, std::move(work));
}
FAKE_API cuGraphUpload(void* exec, void* stream) {
  FAKE_READY();
  return FakeDevice::Get().Owns(static_cast<FakeGraphExec*>(exec)) ? kSuccess : kInvalidHandle;
}
FAKE_API cuGraphLaunch(void* handle, void* stream_handle) {
  FAKE_READY();
  auto* exec = static_cast<FakeGraphExec*>(handle);
  FakeDevice& device = FakeDevice::Get();
  FakeStream* stream = device.StreamOf(stream_handle);
  if (stream == nullptr || !device.Owns(exec)) return kInvalidHandle;
  const std::vector<size_t> order = SomeOrder(*exec);
  if (order.empty() && !exec->nodes.empty()) return kInvalidValue;
  GraphNode work;
  work.kind = GraphNode::kGraph;
  // What the graph does is fixed now: patches after this call are for the next launch.
  for (const size_t node : order) work.nodes.push_back(exec->nodes[node]);
  return device.Enqueue(stream, std::move(work));
}

FAKE_API cuStreamBeginCapture_v2(void* handle, int mode) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  FakeStream* stream = device.StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->capture != nullptr) return kIllegalState;
  if (stream == device.StreamOf(nullptr)) return kCaptureUnsupported;
  stream->capture = NewGraph();
  stream->capture_origin = true;
  stream->capture_tail.clear();
  return kSuccess;
}
FAKE_API cuStreamEndCapture(void* handle, void** graph) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  if (stream == nullptr || graph == nullptr) return kInvalidHandle;
  if (stream->capture == nullptr) return kIllegalState;
  if (!stream->capture_origin) return kCaptureUnmatched;
  *graph = stream->capture;
  return FakeDevice::Get().EndCapture(stream->capture, stream->capture_tail);
}
FAKE_API cuStreamIsCapturing(void* handle, int* capturing) {
  FAKE_READY();
  FakeStream* stream = FakeDevice::Get().StreamOf(handle);
  if (stream == nullptr) return kInvalidHandle;
  *capturing = stream->capture != nullptr ? 1 : 0;
  return kSuccess;
}
