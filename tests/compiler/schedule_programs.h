// Programs as a user writes them, by name, for tests of what the schedule makes of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/examples/gpt.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

enum class Size {
  kSmall,  // for the interpreter
  kReal,   // as people train
};

struct Program {
  std::string name;
  std::function<void(Size)> run;  // its last Run is the program
  bool has_small = true;          // else even the small size is too much for the interpreter
};

const std::vector<Program>& Programs();

// A training step of a GPT of that size. Its text has `characters` of them, of that type.
Program GptStep(std::string name, const examples::GptOptions& options, int64_t batch,
                int64_t characters = 1000, DType type = DType::kU8);
// GPT-2 (Radford et al., 2019), of 124 million parameters where it has 12 layers: a step of 8
// passages of 1,024 tokens.
Program Gpt2Step(std::string name, DType products = DType::kF32, int64_t layers = 12);

// Of rows of logits of that type: their cross-entropy with its gradient, their softmax (computed in
// f32), and the places of their maxima.
struct LogitRows {
  int64_t rows = 1, columns = 1;
  DType dtype = DType::kF32;
};
Program LossGradient(std::string name, const LogitRows& logits);
Program SoftmaxOfRows(std::string name, const LogitRows& logits);
Program ArgmaxOfRows(std::string name, const LogitRows& logits);

// The graph of the program's last Run, in `graph`, and where asked for the slots of the inputs that
// it donates. Records on this thread, with an engine that computes nothing.
const UOp* RecordProgram(Graph& graph, const Program& program, Size size,
                         std::vector<int64_t>* donated = nullptr);

}  // namespace outboard::test
