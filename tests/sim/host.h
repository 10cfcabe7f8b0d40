// The services that a simulated gateway's process provides to its driver: time, chance, jobs.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gateway/data_path/host.h"
#include "tests/sim/world.h"

namespace outboard::sim {

// Jobs end with it. It may stand still for a while, as a process that is stopped and continued:
// whatever happens to it meanwhile it does afterwards, in order.
class SimulatedHost final : public gateway::DriverHost {
 public:
  explicit SimulatedHost(World* world) : world_(world) {}
  gateway::MonoTime Now() override { return {world_->now()}; }
  gateway::WallTime WallNow() override { return {world_->wall_ms()}; }
  gateway::Token DrawToken() override {
    const uint64_t hi = world_->Draw();
    return {hi, world_->Draw()};
  }
  void Post(std::function<void()> job) override {
    After(world_->Between(0, 3) * kMs, std::move(job));
  }
  // Takes any function, so that it lies in one place with what is around it.
  template <typename Job>
  void After(int64_t delay_ns, Job job) {
    world_->After(delay_ns, [alive = std::weak_ptr<Alive>(alive_), job = std::move(job)]() mutable {
      if (const auto host = alive.lock()) host->self->Enter(std::move(job));
    });
  }
  // Something happens to the process.
  template <typename Job>
  void Enter(Job job) {
    paused_ ? waiting_.push_back(std::move(job)) : job();
  }
  void Pause() { paused_ = true; }
  void Resume() {
    paused_ = false;
    for (std::function<void()>& job : std::exchange(waiting_, {})) After(0, std::move(job));
  }
  // As in production, but for those that have a stand-in for a signature (receipt_writer.h).
  bool IsSigned(const proto::Receipt& receipt) override {
    return (has_stand_in && has_stand_in(receipt)) || DriverHost::IsSigned(receipt);
  }
  World& world() { return *world_; }

  std::function<bool(const proto::Receipt&)> has_stand_in;

 private:
  World* const world_;
  struct Alive {
    SimulatedHost* self;
  };
  const std::shared_ptr<Alive> alive_ = std::make_shared<Alive>(this);
  bool paused_ = false;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace outboard::sim
