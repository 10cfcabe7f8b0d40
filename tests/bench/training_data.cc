#include "tests/bench/training_data.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/support/random_bytes.h"

namespace outboard::bench {
namespace {

constexpr int kTextBytes = 1 << 20;
constexpr int kLetters = 96;

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (file.flush()) return;
  std::fprintf(stderr, "outboard_bench: cannot write %s\n", path.c_str());
  std::exit(1);
}

void WriteIdx(const std::string& path, const std::vector<uint32_t>& dims, int below) {
  std::string bytes = {0, 0, 8, static_cast<char>(dims.size())};
  size_t count = 1;
  for (const uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dim >> shift));
    count *= dim;
  }
  Write(path, bytes + test::RandomBytesBelow(count, below));
}

}  // namespace

TrainingData::TrainingData() {
  char folder[] = "/tmp/outboard-data.XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    std::fprintf(stderr, "outboard_bench: no temporary folder\n");
    std::exit(1);
  }
  folder_ = folder;
  for (const auto& [name, images] : {std::pair{"train", 60000u}, std::pair{"t10k", 10000u}}) {
    WriteIdx(absl::StrCat(folder_, "/", name, "-images-idx3-ubyte"), {images, 28, 28}, 256);
    WriteIdx(absl::StrCat(folder_, "/", name, "-labels-idx1-ubyte"), {images}, 10);
  }
  std::string text = test::RandomBytesBelow(kTextBytes, kLetters);
  for (char& c : text) c = static_cast<char>(c + ' ');
  Write(folder_ + "/text", text);
}

TrainingData::~TrainingData() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string TrainingData::MnistCommand(int steps) const {
  return absl::StrCat(Beside("beautiful_mnist"), " --json --seed 1 --batch 128 --steps ", steps,
                      " --eval-every ", steps, " --data ", folder_);
}

std::string TrainingData::GptCommand(int steps, int batch, int context) const {
  return absl::StrCat(Beside("gpt"), " --json --seed 1 --write 0 --batch ", batch, " --context ",
                      context, " --steps ", steps, " --print-every ", steps, " --text ", folder_,
                      "/text");
}

}  // namespace outboard::bench
