// A table of every operator of the library: its spelling, its result in plain loops, its dtypes,
// whether it has a gradient; and every misuse that it reports.
//
// table_test.cc runs the rows, mistakes_test.cc the mistakes; docs/operators.md is made from both.
// No expectation uses an operator of ours: numbers go in and come out as doubles. Values of an
// operand are drawn at random and rounded to its type, so that both sides start from the same
// numbers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::operators {

// A tensor in plain C++, row-major.
struct Array {
  Dims dims;
  std::vector<double> values;

  // The element at an index of dims.size() numbers.
  double operator()(const Dims& index) const;
};

// f(index) for every index of `dims`, in row-major order.
Array Build(const Dims& dims, const std::function<double(const Dims&)>& f);
// Like numpy: axes of length 1 stretch, missing ones are put in front.
Array Stretch(const Array& x, const Dims& dims);
Dims Common(const Dims& a, const Dims& b);
// f(all elements along `axes`) at every index of the other axes, which stay if `keep`. The elements
// come in row-major order.
Array Fold(const Array& x, const Dims& axes, bool keep,
           const std::function<double(const std::vector<double>&)>& f);
Array Reshaped(Array x, const Dims& dims);

// The arguments of a row: its operands, and the requested type.
template <typename T>
struct Given {
  std::vector<T> operands;
  DType dtype;
  const T& operator[](size_t i) const { return operands[i]; }
};
using Tensors = Given<Tensor>;
using Arrays = Given<Array>;

struct Operand {
  Dims dims;
  double low = -2, high = 2;        // of random values; from 0 for unsigned types
  std::vector<double> values = {};  // instead of random ones
  std::optional<DType> dtype = {};  // if it is not the row's; then no gradient
};

enum class Types { kAll, kNumbers, kFloats, kIntegers, kIntegersAndBool, kBool };
bool Has(Types types, DType dtype);

// The type of the result, from that of the operands.
enum class Yields { kSame, kFloat, kBool, kSum, kI32, kU32, kF32 };
DType ResultType(Yields yields, DType dtype);

enum class Gradient { kYes, kNone };

struct Row {
  std::string name;    // as the header declares it
  std::string form;    // as it is written
  std::string shapes;  // "any" or "in -> out"
  Types types;
  Yields yields;
  Gradient gradient;
  std::vector<Operand> operands;
  std::function<Tensor(const Tensors&)> make;
  std::function<Array(const Arrays&)> wanted;
  double units = 4;  // tolerance in roundings of the result's type; 0: the same bits
};

struct Group {
  std::string title;
  std::vector<Row> rows;
};

// A row of every type, with a gradient.
Row OfEveryType(const std::string& name, const std::string& form, const std::string& shapes,
                Yields yields, std::vector<Operand> operands,
                std::function<Tensor(const Tensors&)> make,
                std::function<Array(const Arrays&)> wanted, double units);
// Such a row of values that are only moved: the same bits.
Row Moved(const std::string& name, const std::string& form, const std::string& shapes,
          std::vector<Operand> operands, std::function<Tensor(const Tensors&)> make,
          std::function<Array(const Arrays&)> wanted);

Group Elementwise();  // elementwise.cc
Group Functions();    // functions.cc
Group Binary();       // binary.cc
Group Movement();     // movement.cc
Group Indexing();     // indexing.cc
Group Reductions();   // reductions.cc
Group Products();     // products.cc
Group Windows();      // windows.cc
Group Resizing();     // resizing.cc
Group Networks();     // networks.cc
Group Making();       // making.cc
Group Training();     // training.cc
Group Losses();       // losses.cc
Group Layers();       // layers.cc
Group Optimisers();   // layers.cc
Group Order();        // order.cc
Group Formulas();     // formulas.cc
std::vector<Group> AllGroups();

struct Mistake {
  int line;          // __LINE__, where its statement begins
  std::string name;  // of the operator
  std::string what;  // for people
  absl::StatusCode code;
  std::vector<std::string> words;  // that the message must have: the numbers and types that matter
  std::function<void()> statement;
};

// In the order of their lines in mistakes.cc.
const std::vector<Mistake>& AllMistakes();

}  // namespace outboard::operators
