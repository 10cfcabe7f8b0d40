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
  std::vector<CUtensorMap> maps;       // views of these buffers, in the kernel's order

  // Makes `maps` of the kernel's views and the arguments; does nothing where both are as they were.
  absl::Status EncodeMaps(DriverContext& context);
  // The pointers that the driver reads the parameters through.
  void PointTo(std::vector<void*>& pointers) const;

 private:
  uint64_t encoded_kernel_ = 0;               // by its serial; 0: none
  std::vector<CUdeviceptr> encoded_buffers_;  // by view
};

// Threads: one at a time.
class LaunchGraph final : public runtime::LaunchRecord {
 public:
  LaunchGraph(DriverContext* context, LeftToWork* left) : context_(context), left_(left) {}
  ~LaunchGraph() override { DropLater(); }

  // True from the second list on: one that is queued once alone would not pay for its graph. False
  // if the driver has refused it again and again.
  bool IsWorthwhile() { return seen_++ > 0 && refusals_ < kRefusalsMax; }

  // Queues the launches. A new graph is built if their number has changed since the last call;
  // otherwise only launches whose kernel or arguments changed are patched. With an error nothing is
  // queued.
  //
  // Each launch comes after the one before it. A kernel that waits by itself starts when all blocks
  // of the one before it run: its wait ends when that one is done, and all that came before.
  absl::Status Queue(std::span<const BoundLaunch> launches, CUstream stream);

 private:
  static constexpr int kRefusalsMax = 3;
  struct Node {
    std::shared_ptr<const LinkedModule> module;
    CUfunction function = nullptr;
    std::array<unsigned, 3> blocks{}, threads{};
    unsigned shared_bytes = 0;
    bool waits = false;
    std::vector<CUdeviceptr> arguments;
    std::vector<CUtensorMap> maps;

    explicit Node(const BoundLaunch& launch);
    bool Is(const BoundLaunch& launch) const;
  };
  // The graph, and what is launched: instantiated from it, and patched since. A patch leaves the
  // graph's node as it was made, with its function, which the driver gets once more with each patch
  // and when the graph is destroyed: the modules of both live until both are destroyed.
  struct Owned {
    DriverContext* context;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::vector<std::shared_ptr<const LinkedModule>> modules;
    explicit Owned(DriverContext* owner) : context(owner) {}
    ~Owned();
  };

  absl::Status Make(std::span<const BoundLaunch> launches);
  absl::Status AddNode(const BoundLaunch& launch, bool overlaps);
  absl::Status Patch(std::span<const BoundLaunch> launches);
  void DropLater();

  DriverContext* const context_;
  LeftToWork* const left_;
  std::shared_ptr<Owned> owned_;  // nullptr: none is made
  std::vector<Node> nodes_;
  std::vector<CUgraphNode> handles_;  // in the order of nodes_
  uint64_t seen_ = 0;
  int refusals_ = 0;       // in a row
  bool overlaps_ = true;   // the driver has not refused edges that let kernels start early
};

}  // namespace outboard::cuda
