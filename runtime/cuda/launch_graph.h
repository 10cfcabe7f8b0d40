// A list of launches as one CUDA graph: the driver checks and prepares it once, and queues it with
// one call instead of one for each kernel.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cuda/driver_context.h"
#include "runtime/cuda/kernel.h"
#include "runtime/device.h"

namespace outboard::cuda {

// A kernel with the values of its parameters.
struct BoundLaunch {
  const CudaKernel* kernel = nullptr;
  std::vector<CUdeviceptr> arguments;  // one for each buffer, then the VARs' if it reads them
};

// Threads: one at a time.
class LaunchGraph final : public runtime::LaunchRecord {
 public:
  LaunchGraph(DriverContext* context, LeftToWork* left) : context_(context), left_(left) {}
  ~LaunchGraph() override { DropLater(); }

  // True from the second list on: one that is queued once alone would not pay for its graph.
  bool IsWorthwhile() { return seen_++ > 0; }

  // Queues the launches. The graph is made anew where their number differs from the last time's,
  // and patched at the launches whose kernel or arguments differ.
  absl::Status Queue(std::span<const BoundLaunch> launches, CUstream stream);

  uint64_t made() const { return made_; }        // graphs, so far
  uint64_t patched() const { return patched_; }  // launches, so far

 private:
  struct Node {
    std::shared_ptr<const LinkedModule> module;
    CUfunction function = nullptr;
    std::array<unsigned, 3> blocks{}, threads{};
    unsigned shared_bytes = 0;
    std::vector<CUdeviceptr> arguments;

    explicit Node(const BoundLaunch& launch);
    bool operator==(const Node&) const = default;
  };
  // Unloads when the last work that uses it is done.
  struct Owned {
    DriverContext* context;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    explicit Owned(DriverContext* owner) : context(owner) {}
    ~Owned();
  };

  absl::Status Make(std::span<const BoundLaunch> launches);
  absl::Status Patch(std::span<const BoundLaunch> launches);
  void DropLater();

  DriverContext* const context_;
  LeftToWork* const left_;
  std::shared_ptr<Owned> owned_;  // nullptr: none is made
  std::vector<Node> nodes_;
  std::vector<CUgraphNode> handles_;  // in the order of nodes_
  uint64_t seen_ = 0, made_ = 0, patched_ = 0;
};

}  // namespace outboard::cuda
