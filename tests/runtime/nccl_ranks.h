// Ranks over the fake NCCL (fake_nccl.h), in one process, with a control over sockets or whatever
// is given.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "runtime/collective/loopback.h"
#include "runtime/collective/nccl.h"
#include "tests/runtime/fake_nccl.h"
#include "tests/support/paths.h"

namespace outboard::test {

inline const collective::NcclApi& NcclOfTests() {
  static const collective::NcclApi api = ValueOrDie(collective::LoadNccl(test::kFakeNccl));
  return api;
}

inline const FakeNccl& TheFakeNccl() {
  static const FakeNccl fake = [] {
    void* const handle = dlopen(test::kFakeNccl, RTLD_NOW);
    OB_CHECK(handle != nullptr);
    return reinterpret_cast<FakeNccl (*)()>(dlsym(handle, "outboard_fake_nccl"))();
  }();
  return fake;
}

class FakeNcclStream final : public collective::NcclStream {
 public:
  void* handle() override { return &stream_; }
  absl::StatusOr<uint64_t> Mark() override { return TheFakeNccl().mark(&stream_); }
  absl::StatusOr<bool> IsDone(uint64_t mark) override {
    return TheFakeNccl().is_done(&stream_, mark);
  }

 private:
  FakeStream stream_;
};

// By rank; what MakeNccl says on each. Streams are never destroyed.
inline std::vector<absl::StatusOr<std::unique_ptr<collective::Collective>>> TryNcclRanks(
    const std::vector<int64_t>& mesh, std::chrono::milliseconds patience) {
  auto controls = collective::MakeLoopback(mesh);
  std::vector<absl::StatusOr<std::unique_ptr<collective::Collective>>> ranks;
  for (size_t rank = 0; rank < controls.size(); ++rank)
    ranks.emplace_back(absl::UnknownError("not made"));
  static auto* const streams = new std::vector<std::shared_ptr<FakeNcclStream>>;
  for (size_t rank = 0; rank < controls.size(); ++rank)
    streams->push_back(std::make_shared<FakeNcclStream>());
  const size_t first = streams->size() - controls.size();
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < controls.size(); ++rank)
    threads.emplace_back([&, rank] {
      ranks[rank] = collective::MakeNccl({.api = NcclOfTests(),
                                          .control = std::move(controls[rank]),
                                          .stream = (*streams)[first + rank],
                                          .patience = patience});
    });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

inline std::vector<std::unique_ptr<collective::Collective>> MakeNcclRanks(
    const std::vector<int64_t>& mesh,
    std::chrono::milliseconds patience = std::chrono::seconds(60)) {
  std::vector<std::unique_ptr<collective::Collective>> ranks;
  for (auto& rank : TryNcclRanks(mesh, patience)) ranks.push_back(ValueOrDie(std::move(rank)));
  return ranks;
}

}  // namespace outboard::test
