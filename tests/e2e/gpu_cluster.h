// A gateway, a worker and executors as processes, as in production, over the tests' CUDA driver
// (tests/gpu/driver), which fails on demand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/support/cluster.h"
#include "tests/support/paths.h"

namespace outboard::test {

// Of each GPU. A kernel of a block for each wipes a GPU before every session, which the tests'
// driver takes two seconds for where there are 132.
inline constexpr int kMultiprocessors = 4;

class GpuCluster : public ::testing::Test {
 protected:
  // A driver of `devices` GPUs, which does what the variables ask for.
  std::vector<std::string> Driver(int devices, const std::vector<std::string>& variables = {}) {
    const std::string driver = folder_ / "libcuda.so.1";
    std::filesystem::copy_file(test::kFakeCuda, driver,
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream lines(driver + ".env");
    lines << "OUTBOARD_FAKE_CUDA_DEVICES=" << devices << "\n"
          << "OUTBOARD_FAKE_CUDA_MIB=64\n"  // all of which is overwritten at each start
          << "OUTBOARD_FAKE_CUDA_MULTIPROCESSORS=" << kMultiprocessors << "\n"
          << "OUTBOARD_FAKE_CUDA_RUNS=1\n";
    for (const std::string& line : variables) lines << line << "\n";
    return {"OUTBOARD_DEVICE=cuda", "OUTBOARD_CUDA_DRIVER=" + driver, "REF", "BEAM",
            "CUDA_VISIBLE_DEVICES"};
  }
  void StartUp(std::vector<std::string> environment) {
    cluster_.StartUp(1, "--no-idle-search --snapshot-every 1 --shared-anyway",
                     std::move(environment));
  }
  std::unique_ptr<Session> Connect() { return cluster_.Connect(); }
  // A session of another account than Connect's.
  std::unique_ptr<Session> ConnectOther() {
    if (other_key_.empty()) {
      const Ended made = Outboard("key create --account other --data " + cluster_.data());
      EXPECT_EQ(made.code, 0) << made.err;
      other_key_ = made.out.substr(0, made.out.find('\n'));
    }
    session::SessionOptions options = cluster_.Options();
    options.key = other_key_;
    absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("");
    EXPECT_TRUE(Eventually([&] { return (session = Session::Connect(options)).ok(); }))
        << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  std::string Log() { return cluster_.gateway().err(); }

  static bool Contains(absl::string_view text, absl::string_view part) {
    return text.find(part) != absl::string_view::npos;
  }
  static size_t Lines(const std::string& text) {
    return static_cast<size_t>(std::ranges::count(text, '\n'));
  }

  TempFolder folder_;
  Cluster cluster_;
  std::string other_key_;
};

}  // namespace outboard::test
