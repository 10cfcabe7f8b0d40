// A test with a fresh fake cloud, or with OUTBOARD_TEST_CLOUD set a real one: the compiler's
// answers to the same questions. Counts of the fake session mean nothing then.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>

#include "client/tensor/tensor.h"
#include "tests/client/fake_session.h"

namespace outboard {

class ClientTest : public testing::Test {
 protected:
  ClientTest() : session(std::make_shared<FakeSession>()) {
    if (IsFake()) SetSession(session);
    Tensor::manual_seed(7);
  }
  ~ClientTest() override {
    Tensor::manual_seed(7);  // gives up the random state's buffers
    if (IsFake()) SetSession(nullptr);
  }

  static bool IsFake() { return std::getenv("OUTBOARD_TEST_CLOUD") == nullptr; }

  std::shared_ptr<FakeSession> session;
};

inline void ExpectNear(const Tensor& tensor, const std::vector<double>& wanted,
                       double tolerance = 1e-5) {
  const std::vector<double> values = tensor.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(values[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << "element " << i;
}

template <typename F>
absl::Status StatusOf(const F& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.status();
  }
  return absl::OkStatus();
}

}  // namespace outboard
