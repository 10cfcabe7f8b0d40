// Runs the table: every row for every type, forward and gradient, on whatever session is set. With
// OUTBOARD_ROWS_TOGETHER=n, n rows are one Run, for devices whose compiler takes longest to start.
#include "tests/client/operators/table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/client/client_test.h"
#include "tests/client/operators/draw.h"

namespace outboard::operators {
namespace {}  // namespace

void PrintTo(const Row& row, std::ostream* out) { *out << row.form; }

namespace {

class OperatorTable : public ClientTest, public testing::WithParamInterface<Row> {};

// Half a unit in the last place (docs/semantics.md).
double Rounding(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-53;
    case DType::kF32: return 0x1p-24;
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-8;
    case DType::kF8E4M3: return 0x1p-4;
    case DType::kF8E5M2: return 0x1p-3;
    default: return 0;
  }
}

void ExpectClose(const Array& wanted, const Tensor& got, double units) {
  const DType dtype = got.dtype();
  EXPECT_EQ(got.shape(), wanted.dims);
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    double want = wanted.values[i];
    if (!IsFloat(dtype)) want = static_cast<double>(WrapTo(dtype, static_cast<int64_t>(want)));
    if (IsFloat(dtype) && (units == 0 || std::isinf(want))) want = RoundTo(dtype, want);
    if (values[i] == want || (std::isnan(want) && std::isnan(values[i]))) continue;
    EXPECT_LE(std::abs(values[i] - want), units * Rounding(dtype) * (1 + std::abs(want)))
        << "element " << i << ": " << values[i] << ", wanted " << want;
  }
}

// d(sum(weights * wanted(x)))/d(operand k) by central differences of the plain loops.
Array Slope(const Row& row, const Arrays& x, size_t k, const Array& weights) {
  Array slope = x[k];
  Arrays moved = x;
  const auto at = [&](size_t i, double value) {
    moved.operands[k].values[i] = value;
    const Array y = row.wanted(moved);
    double sum = 0;
    for (size_t j = 0; j < y.values.size(); ++j) sum += weights.values[j] * y.values[j];
    return sum;
  };
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < slope.values.size(); ++i) {
    const double here = x[k].values[i];
    slope.values[i] = (at(i, here + kStep) - at(i, here - kStep)) / (2 * kStep);
    moved.operands[k].values[i] = here;
  }
  return slope;
}

std::vector<Row> AllRows() {
  std::vector<Row> rows;
  for (const Group& group : AllGroups())
    rows.insert(rows.end(), group.rows.begin(), group.rows.end());
  return rows;
}

bool IsThereFor(const std::string& name, DType dtype) {
  static const std::vector<Row> rows = AllRows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return row.name == name && Has(row.types, dtype); });
}

size_t Setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 1 : std::max<size_t>(1, std::strtoul(text, nullptr, 10));
}

// The results of a row, computed with those of the rows that this process tests next.
template <typename Result>
class Rows {
 public:
  // `make` returns a row's results, not computed yet; `tensor_of` the tensor of one of them.
  template <typename Make, typename TensorOf>
  std::vector<Result> Of(const Row& row, Make make, TensorOf tensor_of) {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    const size_t number = std::stoul(name.substr(name.rfind('_') + 1));
    if (!known_.contains(number)) {
      static const std::vector<Row> rows = AllRows();
      static const size_t together = Setting("OUTBOARD_ROWS_TOGETHER"),
                          step = Setting("GTEST_TOTAL_SHARDS");
      known_.clear();
      std::vector<Tensor> all;
      for (size_t n = 0; n < together && number + n * step < rows.size(); ++n) {
        const Row& one = n == 0 ? row : rows[number + n * step];
        std::vector<Result>& results = known_[number + n * step] = make(one);
        for (const Result& result : results) all.push_back(tensor_of(result));
      }
      const absl::Status status = StatusOf([&] {
        realize(all, all);
        if (together > 1 && !all.empty()) (void)all[0].to_vector<double>();
      });
      if (!status.ok()) {
        // A row's failure is its own: each is computed alone when its turn comes.
        known_.clear();
        std::vector<Result> results = make(row);
        all.clear();
        for (const Result& result : results) all.push_back(tensor_of(result));
        realize(all, all);
        return results;
      }
    }
    return std::move(known_.extract(number).mapped());
  }

 private:
  std::map<size_t, std::vector<Result>> known_;
};

struct Forward {
  DType dtype;
  Array wanted;
  Tensor got;
};

std::vector<Forward> ForwardOf(const Row& row) {
  std::vector<Forward> results;
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (!Has(row.types, dtype)) continue;
    SCOPED_TRACE(std::string(Name(dtype)));
    const Drawn x = DrawAll(row, dtype);
    Tensor::manual_seed(7);
    results.push_back({dtype, row.wanted(x.arrays), row.make(x.tensors)});
  }
  return results;
}

TEST_P(OperatorTable, ComputesItsExpectationForEveryType) {
  const Row& row = GetParam();
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    SCOPED_TRACE(std::string(Name(dtype)));
    // A type that none of the operator's rows has is refused where it is written, by name.
    if (Has(row.types, dtype) || IsThereFor(row.name, dtype)) continue;
    const Drawn x = DrawAll(row, dtype);
    Tensor::manual_seed(7);
    const absl::Status status = StatusOf([&] { (void)row.make(x.tensors); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), std::string(Name(dtype)))) << status;
  }
  static Rows<Forward> rows;
  for (const Forward& result :
       rows.Of(row, ForwardOf, [](const Forward& result) { return result.got; })) {
    SCOPED_TRACE(std::string(Name(result.dtype)));
    EXPECT_EQ(result.got.dtype(), ResultType(row.yields, result.dtype));
    ExpectClose(result.wanted, result.got, row.units);
  }
}

struct Backward {
  size_t operand;
  Arrays arrays;
  Array weights;
  Tensor gradient;
};

std::vector<Backward> BackwardOf(const Row& row) {
  if (row.gradient == Gradient::kNone) return {};
  const Drawn x = DrawAll(row, DType::kF64);
  Tensor::manual_seed(7);
  const Tensor y = row.make(x.tensors);
  const Array weights = Draw({y.shape(), 0.5, 2}, DType::kF64, 99);
  std::vector<Tensor> leaves;
  std::vector<size_t> places;
  for (size_t k = 0; k < row.operands.size(); ++k) {
    if (row.operands[k].dtype) continue;
    leaves.push_back(x.tensors[k]);
    places.push_back(k);
  }
  const std::vector<Tensor> gradients = y.gradient(leaves, Upload(weights, DType::kF64));
  std::vector<Backward> results;
  for (size_t i = 0; i < leaves.size(); ++i)
    results.push_back({places[i], x.arrays, weights, gradients[i]});
  return results;
}

TEST_P(OperatorTable, HasTheGradientOfItsExpectation) {
  const Row& row = GetParam();
  static Rows<Backward> rows;
  for (const Backward& result :
       rows.Of(row, BackwardOf, [](const Backward& result) { return result.gradient; })) {
    SCOPED_TRACE(absl::StrCat("operand ", result.operand));
    const Array slope = Slope(row, result.arrays, result.operand, result.weights);
    EXPECT_EQ(result.gradient.shape(), slope.dims);
    const std::vector<double> values = result.gradient.to_vector<double>();
    ASSERT_EQ(values.size(), slope.values.size());
    for (size_t e = 0; e < values.size(); ++e)
      EXPECT_NEAR(values[e], slope.values[e], 1e-7 * (1 + std::abs(slope.values[e])))
          << "element " << e;
  }
}

std::string NameOf(const testing::TestParamInfo<Row>& info) {
  static const std::map<std::string, std::string> kSigns = {
      {"+", "plus"},         {"-", "minus"},       {"*", "times"},
      {"/", "over"},         {"%", "mod"},         {"<", "less"},
      {">", "greater"},      {"<=", "less_equal"}, {">=", "greater_equal"},
      {"==", "equal"},       {"!=", "not_equal"},  {"&", "and"},
      {"|", "or"},           {"^", "xor"},         {"<<", "shift_left"},
      {">>", "shift_right"}, {"+=", "add"},        {"-=", "subtract"},
      {"*=", "multiply"},    {"/=", "divide"},     {"[]", "index"}};
  std::string name = info.param.name;
  if (absl::StartsWith(name, "operator")) name = "operator_" + kSigns.at(name.substr(8));
  return absl::StrCat(name, "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(, OperatorTable, testing::ValuesIn(AllRows()), NameOf);

}  // namespace
}  // namespace outboard::operators
