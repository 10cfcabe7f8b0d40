// Reading gzipped IDX files: whole ones, and every way of being wrong.
#include "client/examples/idx.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

namespace outboard::examples {
namespace {

class IdxTest : public testing::Test {
 protected:
  IdxTest() { std::filesystem::create_directory(folder); }
  ~IdxTest() override { std::filesystem::remove_all(folder); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = folder + "/" + name;
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return path;
  }

  const std::string folder = testing::TempDir() + "/idx_test." + std::to_string(getpid());
};

const std::string kLabels("\0\0\x08\x01\0\0\0\x03\x07\x08\x09", 11);

TEST_F(IdxTest, ReadsAFile) {
  const auto labels = ReadIdx(Write("labels", kLabels));
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_EQ(*labels, (HostTensor{DType::kU8, {3}, "\x07\x08\x09"}));
}

TEST_F(IdxTest, Errors) {
  const auto code = [](const std::string& path) { return ReadIdx(path).status().code(); };
  EXPECT_EQ(code(folder + "/none"), absl::StatusCode::kNotFound);
  for (size_t length = 0; length < kLabels.size(); ++length)
    EXPECT_EQ(code(Write("short", kLabels.substr(0, length))), absl::StatusCode::kInvalidArgument)
        << length;
  EXPECT_EQ(code(Write("long", kLabels + "x")), absl::StatusCode::kInvalidArgument);
  std::string wrong = kLabels;
  wrong[2] = 0x0d;  // f32
  EXPECT_EQ(code(Write("type", wrong)), absl::StatusCode::kInvalidArgument);
  wrong = kLabels;
  wrong[3] = 100;
  EXPECT_EQ(code(Write("rank", wrong)), absl::StatusCode::kInvalidArgument);
  // A length that overflows when multiplied.
  EXPECT_EQ(code(Write("big", std::string("\0\0\x08\x04", 4) + std::string(16, '\xff'))),
            absl::StatusCode::kInvalidArgument);
  const std::string cut = Write("cut", kLabels + std::string(5000, 'y'));
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 9);
  EXPECT_EQ(code(cut), absl::StatusCode::kInvalidArgument);
}

TEST_F(IdxTest, FilesNeedNotBePacked) {
  const std::string images("\0\0\x08\x03\0\0\0\x03\0\0\0\x01\0\0\0\x01xyz", 19);
  for (const std::string name : {"train", "t10k"}) {
    std::ofstream(folder + "/" + name + "-images-idx3-ubyte", std::ios::binary) << images;
    Write(name + "-labels-idx1-ubyte.gz", kLabels);
  }
  const auto all = ReadImages(folder);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->train_images.bytes, "xyz");
}

TEST_F(IdxTest, ImagesAndLabelsBelongTogether) {
  const std::string images(
      "\0\0\x08\x03\0\0\0\x03\0\0\0\x01\0\0\0\x02"
      "abcdef",
      22);
  for (const char* name : {"train", "t10k"}) {
    Write(std::string(name) + "-images-idx3-ubyte.gz", images);
    Write(std::string(name) + "-labels-idx1-ubyte.gz", kLabels);
  }
  const auto all = ReadImages(folder);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->test_images.dims, (std::vector<int64_t>{3, 1, 1, 2}));
  Write("t10k-labels-idx1-ubyte.gz", std::string("\0\0\x08\x01\0\0\0\x02\x07\x08", 10));
  EXPECT_EQ(ReadImages(folder).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace outboard::examples
