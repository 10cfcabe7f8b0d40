// Shared by the gateway's tests: a folder that goes away, a seed that is printed, random leases.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "gateway/ledger/ledger.h"
#include "gateway/ledger/meter.h"

namespace outboard::gateway::test {

class TempDir {
 public:
  // In memory where there is such a folder: the tests commit thousands of times and wait for each.
  TempDir() {
    const std::filesystem::path shm = "/dev/shm";
    const bool in_memory = access(shm.c_str(), W_OK) == 0;
    const auto base = in_memory ? shm : std::filesystem::temp_directory_path();
    std::string name = (base / "outboard-test-XXXXXX").string();
    OB_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// A seed from OUTBOARD_SEED or from the system, printed with the command that repeats the test.
class Random {
 public:
  Random() {
    const char* given = std::getenv("OUTBOARD_SEED");
    seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
    engine_.seed(seed_);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::cout << "repeat: OUTBOARD_SEED=" << seed_ << " build/tests/"
              << program_invocation_short_name << " --gtest_filter=" << test->test_suite_name()
              << "." << test->name() << "\n";
  }
  // low .. high, both possible.
  int64_t Int(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  bool OneIn(int64_t n) { return Int(1, n) == 1; }

 private:
  uint64_t seed_;
  std::mt19937_64 engine_;
};

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr WallTime kNoon{1'700'000'000'000};

inline LeasedDevice DeviceOf(uint64_t session, uint64_t grant = 1, uint32_t device = 0) {
  return LeasedDevice{{SessionId{0xab, session}, grant}, device};
}

inline Charge ChargeFor(const LeasedDevice& device, int64_t from_s, int64_t to_s,
                        int64_t tenant = 1, MicroUsd price = kDefaultPricePerHour) {
  const int64_t from_ms = 1000 * from_s, to_ms = 1000 * to_s;
  return Charge{
      .device = device,
      .tenant = TenantId{tenant},
      .price_per_hour = price,
      .granted_at = kNoon,
      .from_ms = from_ms,
      .to_ms = to_ms,
      .amount = MicroUsd{ChargeAfter(price, to_ms).value - ChargeAfter(price, from_ms).value}};
}

// Posts charges of leases that have what they need: with what is held for them first.
inline absl::StatusOr<std::vector<Posting>> PostHeld(Ledger& ledger,
                                                     std::span<const Charge> charges,
                                                     WallTime now) {
  constexpr size_t kDevices = 4;  // of every lease, of which some are charged
  for (const Charge& charge : charges) {
    const absl::Status held =
        ledger
            .Hold({.lease = charge.device.lease,
                   .tenant = charge.tenant,
                   .prices_per_hour = std::vector<MicroUsd>(kDevices, charge.price_per_hour),
                   .to_ms = charge.to_ms})
            .status();
    // What makes no sense is Post's to refuse.
    if (!held.ok() && !absl::IsInvalidArgument(held)) return held;
  }
  return ledger.Post(charges, now);
}

inline std::unique_ptr<Ledger> OpenLedger(const std::string& path,
                                          const storage::OpenOptions& options = {}) {
  return ValueOrDie(Ledger::Open(path, options));
}

}  // namespace outboard::gateway::test
