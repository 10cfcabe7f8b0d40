// Weights from safetensors files: what is read and sent when, and that what is saved comes back.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "client/nn/checkpoint.h"
#include "client/nn/files.h"
#include "tests/client/fake_session.h"
#include "tests/support/temp_folder.h"

namespace outboard {
namespace {

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("OUTBOARD_FILE_INDEX", (folder_ / "index").c_str(), 1);
    session_ = std::make_shared<FakeSession>();
    SetSession(session_);
  }
  void TearDown() override {
    SetSession(nullptr);
    setenv("OUTBOARD_FILE_INDEX", "", 1);
  }
  void Save() {
    nn::save_safetensors({{"weight", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
                          {"bias", Tensor::from<float>({7, 8}, {2})},
                          {"steps", Tensor::from<int64_t>({9}, {})}},
                         path_);
  }

  test::TempFolder folder_;
  const std::string path_ = folder_ / "model.safetensors";
  std::shared_ptr<FakeSession> session_;
};

TEST_F(SafetensorsTest, WhatIsSavedComesBack) {
  Save();
  const nn::StateDict state = nn::load_safetensors(path_);
  ASSERT_EQ(state.size(), 3u);
  std::map<std::string, Tensor> by_name(state.begin(), state.end());
  EXPECT_EQ(by_name.at("weight").shape(), (Dims{2, 3}));
  EXPECT_EQ(by_name.at("weight").to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(by_name.at("bias").to_vector<float>(), (std::vector<float>{7, 8}));
  EXPECT_EQ(by_name.at("steps").to_vector<int64_t>(), (std::vector<int64_t>{9}));
}

TEST_F(SafetensorsTest, TextsAreKeptBesideTheTensors) {
  nn::save_safetensors({{"w", Tensor::from<float>({1})}}, path_, {{"epoch", "3"}, {"\"", "a\\\n"}});
  std::string bytes(std::filesystem::file_size(path_), '\0');
  std::ifstream(path_, std::ios::binary).read(bytes.data(), static_cast<int64_t>(bytes.size()));
  EXPECT_NE(bytes.find("\"__metadata__\":{\"epoch\":\"3\",\"\\\"\":\"a\\\\\\u000a\"}"),
            std::string::npos)
      << bytes;
  EXPECT_EQ(nn::load_safetensors(path_).size(), 1u);
}

TEST_F(SafetensorsTest, ANameIsThatOfOneTensor) {
  const Tensor one = Tensor::from<float>({1});
  EXPECT_THROW(nn::save_safetensors({{"w", one}, {"w", one}}, path_), Error);
  EXPECT_THROW(nn::save_safetensors({{"__metadata__", one}}, path_), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SafetensorsTest, AFileMayBeATensor) {
  nn::save_safetensors({{"a", Tensor::from<bool>({true, false, true})},
                        {"b", Tensor::from<double>({0.1, -2})},
                        {"c", Tensor::from<int16_t>({-3, 300})}},
                       path_);
  std::string bytes(std::filesystem::file_size(path_), '\0');
  std::ifstream(path_, std::ios::binary).read(bytes.data(), static_cast<int64_t>(bytes.size()));
  const Tensor file = Tensor::from_bytes(DType::kU8, {static_cast<int64_t>(bytes.size())}, bytes);
  const nn::StateDict state = nn::load_safetensors(nn::Bytes::OfTensor(file));
  ASSERT_EQ(state.size(), 3u);
  EXPECT_EQ(state[0].second.to_vector<int>(), (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(state[1].second.to_vector<double>(), (std::vector<double>{0.1, -2}));
  EXPECT_EQ(state[2].second.to_vector<int>(), (std::vector<int>{-3, 300}));
}

TEST_F(SafetensorsTest, FromBlobIsTheBytesOfItsSource) {
  const float numbers[] = {1, 2, 3};
  const std::string_view bytes(reinterpret_cast<const char*>(numbers), sizeof numbers);
  wire::BlobName heard;
  const Tensor tensor = Tensor::from_blob(DType::kF32, {3}, wire::SourceOf(bytes),
                                          [&](const wire::BlobName& name) { heard = name; });
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(heard.root, wire::NameBlob(bytes).root);
  EXPECT_THROW(Tensor::from_blob(DType::kF32, {4}, wire::SourceOf(bytes)), Error);
}

TEST_F(SafetensorsTest, BytesGoWhenSomethingNeedsThem) {
  Save();
  const nn::StateDict state = nn::load_safetensors(path_);
  std::map<std::string, Tensor> by_name(state.begin(), state.end());
  EXPECT_EQ(session_->uploads, 0);
  // Two that one step needs go together; the third stays where it is.
  const Tensor product = by_name.at("weight").sum(1) + by_name.at("bias");
  EXPECT_EQ(session_->uploads, 0);
  EXPECT_EQ(product.to_vector<float>(), (std::vector<float>{13, 23}));
  EXPECT_EQ(session_->uploads, 1);
  EXPECT_EQ(session_->blob_bytes_read, 8 * 4);
  // Again costs nothing.
  by_name.at("weight").sum().item();
  EXPECT_EQ(session_->uploads, 1);
}

TEST_F(SafetensorsTest, AFileMayBeSavedBeforeAnythingElseNeededIt) {
  Save();
  EXPECT_EQ(save("m", nn::load_safetensors(path_)).total, 8 * 4 + 8u);
  EXPECT_EQ(session_->uploads, 1);  // of all three
  const nn::StateDict loaded = load("m");
  ASSERT_EQ(loaded.size(), 3u);
  EXPECT_EQ(loaded[0].first, "bias");
  EXPECT_EQ(loaded[0].second.to_vector<float>(), (std::vector<float>{7, 8}));
  EXPECT_EQ(loaded[2].second.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SafetensorsTest, FilesOfTwoSessionsAreReadTogether) {
  Save();
  const Tensor first = nn::load_safetensors(path_)[0].second;
  SetSession(std::make_shared<FakeSession>());
  const Tensor second = nn::load_safetensors(path_)[0].second;
  std::vector<TensorFuture> values = fetch({first, second});
  EXPECT_EQ(values[0].to_host().bytes, values[1].to_host().bytes);
  EXPECT_EQ(session_->uploads, 1);
}

TEST_F(SafetensorsTest, AFileThatIsGoneBeforeItsBytesAreNeededStillServes) {
  Save();
  const nn::StateDict state = nn::load_safetensors(path_);
  std::filesystem::remove(path_);
  std::map<std::string, Tensor> by_name(state.begin(), state.end());
  EXPECT_EQ(by_name.at("weight").to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(by_name.at("bias").to_vector<float>(), (std::vector<float>{7, 8}));
  EXPECT_EQ(by_name.at("steps").to_vector<int64_t>(), (std::vector<int64_t>{9}));
}

TEST_F(SafetensorsTest, AnUploadThatFailsMayBeTriedAgain) {
  Save();
  const nn::StateDict state = nn::load_safetensors(path_);
  const auto size = std::filesystem::file_size(path_);
  std::string bytes(size, '\0');
  std::ifstream(path_, std::ios::binary).read(bytes.data(), static_cast<int64_t>(size));
  std::filesystem::resize_file(path_, 100);
  EXPECT_THROW(state[0].second.to_host(), Error);
  std::ofstream(path_, std::ios::binary) << bytes;
  EXPECT_EQ(state[0].second.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(SafetensorsTest, FilesThatAreNoneAreRefused) {
  const auto code_of = [](const std::string& path) {
    try {
      nn::load_safetensors(path);
    } catch (const Error& error) {
      return error.status().code();
    }
    return absl::StatusCode::kOk;
  };
  EXPECT_EQ(code_of(folder_ / "none"), absl::StatusCode::kNotFound);
  for (const std::string& text :
       {std::string(), std::string("short"), std::string(8, '\xff'), std::string(100, '\0')}) {
    std::ofstream(path_, std::ios::binary) << text;
    EXPECT_EQ(code_of(path_), absl::StatusCode::kInvalidArgument) << text.size();
  }
}

}  // namespace
}  // namespace outboard
