#include "tests/bench/decode_figures.h"

#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"

namespace outboard::bench {
namespace {

struct Decoding {
  int compiled = 0;              // kernels, all plans together
  std::map<int64_t, double> ms;  // a token's, by the length of the text
};

// What examples/gpt_decode prints, and its private worker with DEBUG=1 beside it.
Decoding Decode(int64_t tokens) {
  std::istringstream lines(OutputOf(
      absl::StrCat("CLOUD=0 DEBUG=1 OUTBOARD_BIN=", Beside("outboard"), " ", Beside("gpt_decode"),
                   " --layers 12 --context 1024 --print-every 128 --tokens ", tokens, " 2>&1")));
  Decoding decoding;
  for (std::string line; std::getline(lines, line);) {
    int kernels = 0, compiled = 0;
    long long length = 0;
    double ms = 0;
    if (std::sscanf(line.c_str(), "plan: %d kernels, %d compiled", &kernels, &compiled) == 2)
      decoding.compiled += compiled;
    if (std::sscanf(line.c_str(), "%lld tokens %lf ms", &length, &ms) == 2)
      decoding.ms[length] = ms;
  }
  return decoding;
}

}  // namespace

void DecodeFigures() {
  const Decoding few = Decode(2), many = Decode(1024);
  Report("decode_compiles", many.compiled - few.compiled, "", "",
         "kernels compiled after the second of 1,024 tokens");
  for (const int64_t length : {256, 1024})
    Report(absl::StrCat("decode_ms_at_", length), many.ms.at(length), "ms", "",
           "a token of 12 layers of width 256, mean of the last 128");
}

}  // namespace outboard::bench
