// Tensors from numbers: constants, sequences, host memory and the random generator.
#include <cmath>
#include <numbers>

#include "compiler/ir/host_tensor.h"
#include "compiler/reference/alu.h"
#include "tests/client/operators/table.h"

namespace outboard::operators {
namespace {

Row Makes(const std::string& name, const std::string& form, const std::string& shapes, Types types,
          Yields yields, std::function<Tensor(DType)> make, std::function<Array(DType)> wanted,
          double units = 0) {
  return {name,
          form,
          shapes,
          types,
          yields,
          Gradient::kNone,
          {},
          [make](const Tensors& x) { return make(x.dtype); },
          [wanted](const Arrays& x) { return wanted(x.dtype); },
          units};
}

HostTensor Host(DType dtype, const Array& x) {
  HostTensor host = {dtype, x.dims, std::string(x.values.size() * ByteWidth(dtype), '\0')};
  for (size_t i = 0; i < x.values.size(); ++i) {
    char* const place = host.bytes.data() + i * ByteWidth(dtype);
    if (IsFloat(dtype))
      StoreFloat(dtype, x.values[i], place);
    else
      StoreInt(dtype, static_cast<int64_t>(x.values[i]), place);
  }
  return host;
}

// What the generator gives after manual_seed(kSeed).
constexpr uint64_t kSeed = 7;
uint64_t Word(int64_t i) { return reference::Threefry(static_cast<uint64_t>(i), kSeed); }

// Uniform in [0, 1) with as many digits as the type has.
double Uniform(DType dtype, int64_t i) {
  const int digits = dtype == DType::kF64      ? 53
                     : dtype == DType::kF32    ? 24
                     : dtype == DType::kF16    ? 11
                     : dtype == DType::kBF16   ? 8
                     : dtype == DType::kF8E4M3 ? 4
                                               : 3;
  if (dtype == DType::kF64) return std::ldexp(static_cast<double>(Word(i) >> 11), -53);
  return std::ldexp(static_cast<uint32_t>(Word(i)) >> (32 - digits), -digits);
}

double Normal(int64_t i) {
  const double high = std::ldexp(static_cast<double>((Word(i) >> 40) + 1), -24);
  const double low = std::ldexp(static_cast<uint32_t>(Word(i)) >> 8, -24);
  return std::sqrt(-2 * std::log(high)) * std::sin(2 * std::numbers::pi * low);
}

}  // namespace

Group Making() {
  const Array numbers = {{2, 2}, {0, 1, 1, 0}};
  const auto row = [](int64_t n, auto f) {
    return
        [n, f](DType dtype) { return Build({n}, [&](const Dims& i) { return f(dtype, i[0]); }); };
  };
  const std::string dims = "dims";
  return {
      "Making",
      {
          Makes(
              "full", "Tensor::full(dims, value, dtype)", dims, Types::kNumbers, Yields::kSame,
              [](DType t) { return Tensor::full({2, 2}, 3, t); },
              [](DType) { return Build({2, 2}, [](auto&) { return 3; }); }),
          Makes(
              "zeros", "Tensor::zeros(dims, dtype)", dims, Types::kAll, Yields::kSame,
              [](DType t) { return Tensor::zeros({2}, t); },
              row(2, [](DType, int64_t) { return 0; })),
          Makes(
              "ones", "Tensor::ones(dims, dtype)", dims, Types::kAll, Yields::kSame,
              [](DType t) { return Tensor::ones({2}, t); },
              row(2, [](DType, int64_t) { return 1; })),
          Makes(
              "arange", "Tensor::arange(n, dtype), arange(begin, end, step, dtype)", "[n]",
              Types::kNumbers, Yields::kSame, [](DType t) { return Tensor::arange(5, t); },
              row(5, [](DType, int64_t i) { return i; })),
          Makes(
              "arange", "Tensor::arange(n, dtype), arange(begin, end, step, dtype)", "[n]",
              Types::kNumbers, Yields::kSame, [](DType t) { return Tensor::arange(9, 1, -3, t); },
              row(3, [](DType, int64_t i) { return 9 - 3 * i; })),
          Makes(
              "linspace", "Tensor::linspace(begin, end, n, dtype)", "[n]", Types::kFloats,
              Yields::kSame, [](DType t) { return Tensor::linspace(-1, 2, 6, t); },
              row(6, [](DType, int64_t i) { return -1 + 3 * static_cast<double>(i) / 5; }), 2),
          Makes(
              "full_like", "x.full_like(value)", "same", Types::kNumbers, Yields::kSame,
              [](DType t) { return Tensor::zeros({2}, t).full_like(3); },
              row(2, [](DType, int64_t) { return 3; })),
          Makes(
              "zeros_like", "x.zeros_like()", "same", Types::kAll, Yields::kSame,
              [](DType t) { return Tensor::ones({2}, t).zeros_like(); },
              row(2, [](DType, int64_t) { return 0; })),
          Makes(
              "ones_like", "x.ones_like()", "same", Types::kAll, Yields::kSame,
              [](DType t) { return Tensor::zeros({2}, t).ones_like(); },
              row(2, [](DType, int64_t) { return 1; })),
          Makes(
              "eye", "Tensor::eye(n, dtype)", "[n, n]", Types::kAll, Yields::kSame,
              [](DType t) { return Tensor::eye(3, t); },
              [](DType) { return Build({3, 3}, [](auto& i) { return i[0] == i[1]; }); }),
          Makes(
              "from", "Tensor::from<float>({1, 2}, dims)", "dims, or [n]", Types::kAll,
              Yields::kF32, [](DType) { return Tensor::from<float>({0.5, 2, -3}); },
              [](DType) { return Array{{3}, {0.5, 2, -3}}; }),
          Makes(
              "from_bytes", "Tensor::from_bytes(dtype, dims, bytes)", dims, Types::kAll,
              Yields::kSame,
              [=](DType t) { return Tensor::from_bytes(t, {2, 2}, Host(t, numbers).bytes); },
              [=](DType) { return numbers; }),
          Makes(
              "from_host", "Tensor::from_host(host)", "of the host's tensor", Types::kAll,
              Yields::kSame, [=](DType t) { return Tensor::from_host(Host(t, numbers)); },
              [=](DType) { return numbers; }),
          Makes(
              "rand", "Tensor::rand(dims, dtype), in [0, 1)", dims, Types::kFloats, Yields::kSame,
              [](DType t) { return Tensor::rand({6}, t); }, row(6, Uniform)),
          Makes(
              "uniform", "Tensor::uniform(dims, low, high, dtype)", dims, Types::kFloats,
              Yields::kSame, [](DType t) { return Tensor::uniform({6}, -1, 3, t); },
              row(6, [](DType t, int64_t i) { return 4 * Uniform(t, i) - 1; }), 4),
          Makes(
              "randn", "Tensor::randn(dims, dtype)", dims, Types::kFloats, Yields::kSame,
              [](DType t) { return Tensor::randn({6}, t); },
              // Its numbers have 24 digits, whatever the type.
              row(6,
                  [](DType t, int64_t i) {
                    return t == DType::kF64 ? Normal(i) : static_cast<float>(Normal(i));
                  }),
              8),
          Makes(
              "randint", "Tensor::randint(dims, low, high)", dims, Types::kAll, Yields::kI32,
              [](DType) { return Tensor::randint({6}, -3, 9); },
              row(6,
                  [](DType, int64_t i) {
                    return -3 + static_cast<double>((Word(i) & 0xffffffffu) * 12 >> 32);
                  })),
          Makes(
              "kaiming_uniform", "Tensor::kaiming_uniform(dims, a, dtype)", dims, Types::kFloats,
              Yields::kSame, [](DType t) { return Tensor::kaiming_uniform({2, 3}, 0, t); },
              [](DType t) {
                return Build({2, 3}, [&](auto& i) {
                  return std::sqrt(2.0) * (2 * Uniform(t, 3 * i[0] + i[1]) - 1);
                });
              },
              4),
      },
  };
}

}  // namespace outboard::operators
