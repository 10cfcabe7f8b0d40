// The services that a simulated gateway's process provides to its driver: time, chance, jobs.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "gateway/data_path/host.h"
#include "tests/sim/world.h"

namespace outboard::sim {

// Jobs end with it.
class SimulatedHost final : public gateway::DriverHost {
 public:
  explicit SimulatedHost(World* world) : world_(world) {}
  gateway::MonoTime Now() override { return {world_->now()}; }
  gateway::WallTime WallNow() override { return {world_->wall_ms()}; }
  gateway::Token DrawToken() override {
    const uint64_t hi = world_->Draw();
    return {hi, world_->Draw()};
  }
  void Post(std::function<void()> job) override { After(world_->Between(0, 3) * kMs, job); }
  void After(int64_t delay_ns, std::function<void()> job) {
    world_->After(delay_ns, [alive = std::weak_ptr<bool>(alive_), job = std::move(job)] {
      if (!alive.expired()) job();
    });
  }
  World& world() { return *world_; }

 private:
  World* const world_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace outboard::sim
