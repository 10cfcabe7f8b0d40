// A small training through a faulty network to the real processes, for tests that disturb it: what
// must come out is what comes out of an undisturbed run, to the last bit, with every kernel run
// once.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/session/current_session.h"
#include "client/session/session.h"
#include "tests/e2e/small_training.h"
#include "tests/net/fault_proxy.h"
#include "tests/support/cluster.h"

namespace outboard::test {

struct Trained {
  std::vector<double> losses;
  std::string weights;
  uint64_t runs = 0, kernels = 0;
};

class CloudTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Thousands of cuts of one account are no flood here.
    cluster_.StartUp(1, "--openings-per-minute 1000000");
    proxy_ = std::make_unique<FaultProxy>(cluster_.target());
  }
  void TearDown() override { SetSession(nullptr); }

  // Through the proxy.
  session::SessionOptions Options() {
    session::SessionOptions options = cluster_.Options();
    options.target = proxy_->address();
    options.tell = [](const std::string&) {};
    return options;
  }
  // Tensors from here on live in a session of their own.
  void Open() {
    auto session = Session::Connect(Options());
    ASSERT_TRUE(session.ok()) << session.status();
    SetSession(*std::move(session));
  }
  void Close() {
    const auto closed = CloseSession();
    EXPECT_TRUE(closed.ok()) << closed.status();
    SetSession(nullptr);
  }

  // `disturb` is called before step 0, 1 ...; the loss is read every `read_every` steps.
  Trained Train(int steps, int read_every, const std::function<void(int step)>& disturb) {
    Trained trained;
    Open();
    try {
      SmallTraining training;
      std::vector<Tensor> losses;
      for (int step = 0; step < steps; ++step) {
        disturb(step);
        losses.push_back(training.Step());
        if ((step + 1) % read_every == 0)
          for (; !losses.empty(); losses.erase(losses.begin()))
            trained.losses.push_back(losses.front().item());
      }
      trained.weights = training.Weights();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    Calm();
    if (SessionIfConnected() != nullptr) {
      EXPECT_TRUE(SessionIfConnected()->Sync().ok());
      const session::Stats stats = SessionIfConnected()->stats();
      trained.runs = stats.runs;
      trained.kernels = stats.kernels_launched;
    }
    Close();
    return trained;
  }

  // No more faults.
  void Calm() {
    proxy_->SetCutter(nullptr);
    for (const Way way : {Way::kUp, Way::kDown}) {
      proxy_->Resume(way);
      proxy_->SetShape(way, {});
    }
    proxy_->SetRefuse(false);
  }

  static void ExpectSame(const Trained& expected, const Trained& actual) {
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_TRUE(actual.weights == expected.weights) << "the weights differ";
    EXPECT_EQ(actual.runs, expected.runs);
    EXPECT_EQ(actual.kernels, expected.kernels) << "not each step ran once";
  }

  Cluster cluster_;
  std::unique_ptr<FaultProxy> proxy_;
};

}  // namespace outboard::test
