// What the tests of lost processes share: a cluster, users' programs on it, and its books.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/documented.h"
#include "tests/support/paths.h"

namespace outboard::test {

class LostTest : public ::testing::Test {
 protected:
  void TearDown() override {
    if (!std::filesystem::exists(cluster_.data())) return;  // a private worker's books go with it
    auto books = cluster_.Books();
    ASSERT_NE(books, nullptr);
    EXPECT_TRUE(books->Verify().ok());
  }

  // A user's program on the cluster, in the middle of its steps.
  std::unique_ptr<test::Process> StartStepper(std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"CLOUD=1", "CLOUD_HOST=" + cluster_.target(), "CLOUD_KEY=" + cluster_.key()});
    auto stepper = std::make_unique<test::Process>(std::vector<std::string>{test::kStepperProgram},
                                                   std::move(more));
    EXPECT_TRUE(Eventually([&] { return stepper->out().find("step 3\n") != std::string::npos; }))
        << stepper->err();
    return stepper;
  }

  // Steps until they fail.
  static absl::Status FailureOf(Session& session) {
    absl::Status status;
    EXPECT_TRUE(Eventually([&] { return !(status = Step(session)).ok(); }));
    return status;
  }
  int64_t BilledSeconds() { return cluster_.Books()->UsageOfAll()->device_ms / 1000; }

  test::Cluster cluster_;
};

}  // namespace outboard::test
