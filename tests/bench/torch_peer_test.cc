// A benchmark prints no ratio against a PyTorch that lacks its fast libraries.
#include "tests/bench/torch_peer.h"

#include <gtest/gtest.h>

namespace outboard::bench {
namespace {

TEST(TorchPeer, JudgeTorch_LacksALibrary_SaysWhich) {
  const struct {
    const char* text;
    const char* lacks;  // a part of the reason; nothing: a ratio may be printed
    const char* version;
  } cases[] = {
      {R"({"version": "2.9.1+cpu", "mkl": true, "openblas": false, "onednn": true})", "",
       "2.9.1+cpu (MKL, oneDNN)"},
      {R"({"version": "1.13.0a0", "mkl": false, "openblas": true, "onednn": true})", "",
       "1.13.0a0 (OpenBLAS, oneDNN)"},
      {R"({"version": "1.13.0a0", "mkl": false, "openblas": false, "onednn": true})",
       "without MKL or OpenBLAS", ""},
      {R"({"version": "1.13.0a0", "mkl": false, "openblas": true, "onednn": false})",
       "without oneDNN", ""},
      {R"({"version": "2.9.1+cpu", "mkl": true})", "without oneDNN", ""},
      {"", "not installed", ""},
      {"Traceback (most recent call last):", "not installed", ""},
  };
  for (const auto& c : cases) {
    const TorchPeer peer = JudgeTorch(c.text);
    EXPECT_EQ(peer.lacks.empty(), *c.lacks == 0) << c.text << ": " << peer.lacks;
    EXPECT_NE(peer.lacks.find(c.lacks), std::string::npos) << c.text << ": " << peer.lacks;
    EXPECT_EQ(peer.version, c.version);
  }
}

// The real one, whichever it is: either its libraries are named or the reason is.
TEST(TorchPeer, Torch_OfThisMachine_IsJudged) {
  EXPECT_FALSE(Torch().python.empty());
  EXPECT_NE(Torch().lacks.empty(), Torch().version.empty());
}

}  // namespace
}  // namespace outboard::bench
