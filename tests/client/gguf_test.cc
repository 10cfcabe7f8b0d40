// Models from GGUF files: what is sent when, in how many files they come, and which are refused.
#include <gtest/gtest.h>

#include <fstream>

#include "client/nn/files.h"
#include "tests/client/client_test.h"
#include "tests/client/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace outboard {
namespace {

using absl::StatusCode;

class GgufTest : public ClientTest {
 protected:
  std::string File(const std::string& name, const test::Gguf& gguf) {
    std::ofstream(folder_ / name, std::ios::binary) << gguf.Write();
    return folder_ / name;
  }
  StatusCode CodeOf(const std::string& path) {
    return StatusOf([&] { nn::load_gguf(path); }).code();
  }

  test::TempFolder folder_;
};

// Blocks of Q8_0 whose scale is 0.5 and whose elements count from `first`.
std::string Counting(int blocks, int first) {
  std::string bytes;
  for (int block = 0; block < blocks; ++block) {
    bytes += std::string("\0\x38", 2);
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<char>(first++));
  }
  return bytes;
}

test::Gguf Model() {
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  test::Gguf gguf;
  gguf.Text("general.architecture", "llama").Value("llama.block_count", 4, uint32_t{2});
  gguf.Array("norm", {3, 2}, 0, {reinterpret_cast<const char*>(numbers), sizeof numbers});
  gguf.Array("weight", {32, 2}, 8, Counting(2, -32));
  return gguf;
}

void ExpectModel(const nn::Gguf& gguf) {
  ASSERT_EQ(gguf.metadata.size(), 2u);
  EXPECT_EQ(std::get<std::string>(gguf.metadata[0].second), "llama");
  EXPECT_EQ(std::get<int64_t>(gguf.metadata[1].second), 2);
  ASSERT_EQ(gguf.tensors.size(), 2u);
  EXPECT_EQ(gguf.tensors[0].second.shape(), (Dims{2, 3}));
  EXPECT_EQ(gguf.tensors[0].second.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(gguf.tensors[1].first, "weight");
  EXPECT_EQ(gguf.tensors[1].second.shape(), (Dims{2, 32}));
  std::vector<float> wanted;
  for (int i = -32; i < 32; ++i) wanted.push_back(static_cast<float>(i) / 2);
  EXPECT_EQ(gguf.tensors[1].second.to_vector<float>(), wanted);
}

TEST_F(GgufTest, PackedBytesTravelWhenSomethingNeedsThem) {
  const nn::Gguf gguf = nn::load_gguf(File("m.gguf", Model()));
  EXPECT_EQ(session->uploads, 0);
  gguf.tensors[1].second.sum().item();
  EXPECT_EQ(session->blob_bytes_read, 2 * 34);
  ExpectModel(gguf);
}

TEST_F(GgufTest, AFileMayBeATensor) {
  const std::string bytes = Model().Write();
  const Tensor tensor = Tensor::from_bytes(DType::kU8, {static_cast<int64_t>(bytes.size())}, bytes);
  ExpectModel(nn::load_gguf(nn::Bytes::OfTensor(tensor)));
  // One whose bytes have not been sent is as good as the file: only what is needed is.
  const Tensor file = nn::Bytes::OfFile(File("m.gguf", Model()))
                          .Tensors(std::vector<nn::Bytes::Range>{
                              {DType::kU8, {static_cast<int64_t>(bytes.size())}, 0}})[0];
  const int64_t uploads = session->uploads;
  const nn::Gguf gguf = nn::load_gguf(nn::Bytes::OfTensor(file));
  EXPECT_EQ(session->uploads, uploads);
  ExpectModel(gguf);
  EXPECT_FALSE(file.empty());
  EXPECT_EQ(session->blob_bytes_read, 2 * 34 + 24);
  EXPECT_THROW(nn::Bytes::OfTensor(tensor.reshape({1, -1})), Error);
  EXPECT_THROW(nn::Bytes::OfTensor(tensor.cast(DType::kI32)), Error);
}

TEST_F(GgufTest, ALongHeaderIsReadWhole) {
  test::Gguf gguf = Model();
  gguf.Texts("tokens", std::vector<std::string>(100000, "0123456789ab"));
  const nn::Gguf read = nn::load_gguf(File("long.gguf", gguf));
  EXPECT_EQ(std::get<std::vector<std::string>>(read.metadata[2].second).size(), 100000u);
  EXPECT_EQ(read.tensors[0].second.to_vector<float>()[5], 6);
}

test::Gguf Part(int number, int count, const std::string& array) {
  test::Gguf gguf;
  gguf.Value("split.no", 2, static_cast<uint16_t>(number));
  gguf.Value("split.count", 2, static_cast<uint16_t>(count));
  gguf.Array(array, {32}, 8, Counting(1, 32 * number));
  return gguf;
}

TEST_F(GgufTest, PartsAreLoadedByTheFirst) {
  const std::string first = File("m-00001-of-00003.gguf", Part(0, 3, "a"));
  EXPECT_EQ(CodeOf(first), StatusCode::kNotFound);
  const std::string second = File("m-00002-of-00003.gguf", Part(1, 3, "b"));
  File("m-00003-of-00003.gguf", Part(2, 3, "c"));
  const nn::Gguf gguf = nn::load_gguf(first);
  ASSERT_EQ(gguf.tensors.size(), 3u);
  EXPECT_EQ(gguf.tensors[2].first, "c");
  EXPECT_EQ(gguf.tensors[2].second.to_vector<float>()[0], 32);
  EXPECT_EQ(CodeOf(second), StatusCode::kInvalidArgument);

  File("m-00003-of-00003.gguf", Part(1, 3, "c"));
  EXPECT_EQ(CodeOf(first), StatusCode::kInvalidArgument) << "another part";
  File("m-00003-of-00003.gguf", Part(2, 3, "a"));
  EXPECT_EQ(CodeOf(first), StatusCode::kInvalidArgument) << "a name twice";
  EXPECT_EQ(CodeOf(File("renamed.gguf", Part(0, 3, "a"))), StatusCode::kInvalidArgument);
}

TEST_F(GgufTest, FilesThatAreNoneAreRefused) {
  EXPECT_EQ(CodeOf(folder_ / "missing.gguf"), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(folder_.path()), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(File("magic.gguf", Model().Magic("GGML"))), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard
