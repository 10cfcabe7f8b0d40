// Checkpoints of the Tensor API: saved as they are at the call, loaded without bytes, and the error
// names what does not fit.
#include "client/nn/checkpoint.h"

#include <gtest/gtest.h>

#include "client/nn/layers.h"
#include "tests/client/client_test.h"

namespace outboard {
namespace {

using absl::StatusCode;

using CheckpointTest = ClientTest;

TEST_F(CheckpointTest, LoadsWhatWasSavedAndSendsNothing) {
  nn::Linear model(3, 2);
  const std::vector<float> weight = model.weight.to_vector<float>();
  const SavedBytes saved = save("m/1", nn::state_dict(model));
  EXPECT_EQ(saved.total, (6 + 2) * sizeof(float));
  const int64_t puts = session->puts, fetches = session->fetches;
  nn::StateDict loaded = load("m/1");
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_EQ(loaded[0].first, "bias");
  nn::Linear other(3, 2);
  nn::load_state_dict(nn::state_dict(other), loaded);
  EXPECT_EQ(session->puts, puts);
  EXPECT_EQ(session->fetches, fetches);
  EXPECT_EQ(other.weight.to_vector<float>(), weight);
}

TEST_F(CheckpointTest, ValuesAreThoseAtTheCall) {
  Tensor w = Tensor::from<float>({1, 2});
  SaveFuture first = save_later("w", {{"w", w}});
  w += 1;
  w.realize();
  EXPECT_EQ(first.wait().total, 8u);
  EXPECT_EQ(load("w")[0].second.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(StatusOf([&] { first.wait(); }).code(), StatusCode::kFailedPrecondition);
  save("w", {{"w", w}});  // replaces
  EXPECT_EQ(load("w")[0].second.to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST_F(CheckpointTest, WhatDoesNotFitIsNamed) {
  save("small", nn::state_dict(nn::Linear(3, 2)));
  nn::Linear larger(4, 2);
  const absl::Status shape =
      StatusOf([&] { nn::load_state_dict(nn::state_dict(larger), load("small")); });
  EXPECT_EQ(shape.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(shape.message().find("weight ([2, 3] for [2, 4])"), std::string::npos) << shape;
  const absl::Status missing = StatusOf([&] {
    nn::load_state_dict({{"gain", Tensor::zeros({1})}}, load("small"));
  });
  EXPECT_NE(missing.message().find("missing gain; unexpected bias, weight"), std::string::npos)
      << missing;
}

TEST_F(CheckpointTest, MistakesAreRaised) {
  const Tensor one = Tensor::from<float>({1});
  EXPECT_EQ(StatusOf([] { load("never"); }).code(), StatusCode::kNotFound);
  EXPECT_EQ(StatusOf([&] { save("x", {{"a", Tensor()}}); }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] {
              save("x", {{"a", one}, {"a", one}});
            }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf([&] { save("full", {{"a", one}}); }).code(), StatusCode::kResourceExhausted);
  session->fail_next_run = absl::DataLossError("a broken device");
  Tensor broken = one + 1;
  EXPECT_EQ(StatusOf([&] { save("x", {{"a", broken}}); }).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(StatusOf([&] { save("x", {{"tied", one}, {"too", one}}); }).ok());
}

}  // namespace
}  // namespace outboard
