// A decode loop with a growing cache: one graph however long the text gets, and the tokens that
// recomputing everything gives, on the cloud that is tested and on the interpreter.
#include "client/examples/gpt_decoder.h"
#include "tests/client/client_test.h"

namespace outboard::examples {
namespace {

constexpr int64_t kCount = 9;
const std::vector<int64_t> kPrompt = {3, 1, 4};

GptOptions Small() {
  return {.vocabulary = 11, .layers = 2, .width = 16, .heads = 2, .context = 16};
}

// Weights large enough that the net has an opinion.
Gpt Net() {
  Tensor::manual_seed(11);
  Gpt net(Small());
  for (auto& [name, tensor] : nn::state_dict(net)) Tensor(tensor).assign(tensor * 3).realize();
  return net;
}

std::vector<int64_t> WriteWithoutCache(const Gpt& net) {
  std::vector<int64_t> tokens = kPrompt;
  for (int64_t i = 0; i < kCount; ++i) {
    const auto length = static_cast<int64_t>(tokens.size());
    const Tensor logits = net(Tensor::from<int64_t>(tokens, {1, length}));
    tokens.push_back(logits.slice(1, length - 1, length).argmax().item<int64_t>());
  }
  return {tokens.begin() + static_cast<int64_t>(kPrompt.size()), tokens.end()};
}

using DecodeTest = ClientTest;

TEST_F(DecodeTest, SameTokensAsWithoutACache) {
  const Gpt net = Net();
  const std::vector<int64_t> written = GptDecoder(net, Small()).Write(kPrompt, kCount);
  EXPECT_EQ(written, WriteWithoutCache(net));
  EXPECT_GT(std::set<int64_t>(written.begin(), written.end()).size(), 1u) << "says nothing";

  SetSession(session);  // the interpreter's, also where a real cloud is tested
  const Gpt again = Net();
  EXPECT_EQ(GptDecoder(again, Small()).Write(kPrompt, kCount), written);
}

// The same weights: only products and what lies between them are rounded.
TEST_F(DecodeTest, ProductsOfBf16_HaveNearlyTheSameLogits) {
  const auto logits = [](DType products) {
    Tensor::manual_seed(11);
    GptOptions options = Small();
    options.products = products;
    const Gpt net(options);
    const Tensor result = net(Tensor::from<int64_t>(kPrompt, {1, 3}));
    EXPECT_EQ(result.dtype(), DType::kF32);
    return result.to_vector<float>();
  };
  const std::vector<float> whole = logits(DType::kF32), rounded = logits(DType::kBF16);
  ASSERT_EQ(whole.size(), rounded.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], rounded[i], 0.1) << i;
  EXPECT_NE(whole, rounded) << "nothing was rounded";
}

TEST_F(DecodeTest, OneGraph) {
  const Gpt net = Net();
  GptDecoder decoder(net, Small());
  const size_t before = session->graph_count();
  const int64_t runs = session->runs;
  decoder.Write(kPrompt, kCount);
  EXPECT_EQ(session->graph_count() - before, 1u);
  EXPECT_EQ(session->runs - runs, static_cast<int64_t>(kPrompt.size()) + kCount - 1);
  EXPECT_EQ(session->last.donate.size(), 5u) << "the old caches, and the token";
}

TEST_F(DecodeTest, EndsWithTheContext) {
  const Gpt net = Net();
  GptDecoder decoder(net, Small());
  decoder.Write(kPrompt, 14);
  EXPECT_EQ(decoder.position(), 16);
  EXPECT_EQ(StatusOf([&] { decoder.Write({1}, 1); }).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::examples
