// Where this build's programs and libraries and the tree's files are. The paths are in one object
// (its source: tests/CMakeLists.txt): a test's own object that named a path would be another one in
// each folder that the tree is built in, and the compiler's cache would have none of them.
#pragma once

#include <string>

namespace outboard::test {

extern const char kSourceFolder[];  // the tree
extern const char kBuildFolder[];
extern const char kBenchFolder[];  // tests/bench, whose scripts the benchmarks start

// Programs.
extern const char kOutboardProgram[];
extern const char kCompilerProgram[];  // outboard-compiler
extern const char kLinearProgram[];    // an example that trains for 12 steps
extern const char kOwnBoxProgram[];    // that of docs/own-box.md
extern const char kSmallTrainerProgram[];
extern const char kStepperProgram[];
extern const char kSandboxAttemptsProgram[];
extern const char kPtxWarpTest[];  // a test with the PTX machine

// Libraries, which tests load by their path.
extern const char kFakeCuda[];             // a CUDA driver over the PTX machine
extern const char kRecordingCudaDriver[];  // one that computes nothing and remembers its calls
extern const char kPartialCudaDriver[];    // the same, without a function that we need
extern const char kFakeNvml[];
extern const char kFakeNccl[];
extern const char kPacedSockets[];  // for LD_PRELOAD: sockets at the rate of a slow link

// Objects, as a compiler leaves them.
extern const char kLoaderSamples[];
extern const char kLoaderSamplesBad[];

// The path of a file or folder of this tree, such as "docs/prices.md".
inline std::string SourceFile(const std::string& path) {
  return std::string(kSourceFolder) + "/" + path;
}

}  // namespace outboard::test
