// Random data in files, and the command lines of the example programs that train on it: a network
// for images (client/examples/mnist.h), batch 128, and a transformer of 12 layers
// (client/examples/gpt.h), width 256.
#pragma once

#include <string>

namespace outboard::bench {

class TrainingData {
 public:
  // Exits with a message where the files cannot be written.
  TrainingData();
  ~TrainingData();  // removes them
  TrainingData(const TrainingData&) = delete;
  TrainingData& operator=(const TrainingData&) = delete;

  // The command line for a number of steps; it prints one JSON object.
  std::string MnistCommand(int steps) const;
  // `batch` passages of `context` characters.
  std::string GptCommand(int steps, int batch = 4, int context = 128) const;
  // A text of 96 letters, drawn at random.
  std::string Text() const { return folder_ + "/text"; }

 private:
  std::string folder_;
};

}  // namespace outboard::bench
