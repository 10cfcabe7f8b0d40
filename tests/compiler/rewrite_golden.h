// The expected results of the simplifier, as blocks of expressions. All lines of a `same` block
// must normalise to one graph; no two lines of a `differ` block to the same. `x:i64 in 0..9`
// declares a value and its bounds; without bounds it may be any value of its type. A line may end
// in `where x in a..b`, which holds for that line alone.
#pragma once

namespace outboard::test {

inline constexpr char kGolden[] = R"(
same: x:i32                            # identities
  x
  (ADD x 0)
  (ADD 0 x)
  (MUL x 1)
  (IDIV x 1)
  (NEG (NEG x))
  (XOR (XOR x 7) 7)
  (MAX x x)
  (SHL x 0)
  (IDIV (MUL x 4) 4)   where x in 0..1000
  (MOD x 1000)         where x in -999..999
  (ADD (MOD x 7) (MUL (IDIV x 7) 7))
  (CAST:i32 (CAST:i64 x))
  (WHERE (CMPLT x 5) x x)

differ: x:i32                          # it may wrap, or be negative
  x
  (IDIV (MUL x 4) 4)
  (MOD x 1000)

differ: x:f32                          # NaN, -0, rounding
  (MUL x 0.0)
  0.0
  x
  (ADD x 0.0)
  (FDIV (MUL x 3.0) 3.0)
  (ADD (ADD x 0.1) 0.2)
  (ADD x 0.3)
  (WHERE (CMPEQ x x) 1.0 0.0)
  1.0

same: x:f32
  x
  (ADD x -0.0)
  (MUL x 1.0)
  (FDIV x 1.0)
  (NEG (NEG x))
  (MAX x x)
  (MUL (MUL x -1.0) -1.0)
  (CAST:f32 (CAST:f64 x))
  (WHERE (CMPLT x x) 7.0 x)            # not even NaN is less than itself

same: x:f32
  (MUL x 0.25)
  (FDIV x 4.0)
  (MUL 0.25 x)

same: x:f32 y:f32                      # one order of operands
  (MUL (ADD x y) y)
  (MUL y (ADD y x))

same: r0:i64 in 0..9  r1:i64 in 0..19  # like terms, the constant last
  (ADD (ADD (MUL r0 4) r1) 7)
  (ADD 7 (ADD r1 (ADD r0 (MUL r0 3))))
  (ADD (MUL 2 (ADD r0 r0)) (ADD (SHL r1 1) (ADD 7 (NEG r1))))

same: r0:i64 in 0..9  r1:i64 in 0..19  r2:i64 in 0..4  # row-major places
  (ADD (ADD (MUL r0 100) (MUL r1 5)) r2)
  (ADD (MUL (ADD (MUL r0 20) r1) 5) r2)

same: r0:i64 in 0..9  r1:i64 in 0..19  r2:i64 in 0..4  # and back
  r1
  (MOD (IDIV (ADD (MUL (ADD (MUL r0 20) r1) 5) r2) 5) 20)
  (IDIV (MOD (ADD (MUL (ADD (MUL r0 20) r1) 5) r2) 100) 5)
  (MOD (ADD (MUL r0 20) r1) 20)
  (IDIV (ADD (MUL r1 5) r2) 5)

same: r0:i64 in 0..9  r1:i64 in 0..19  r2:i64 in 0..4
  (IDIV r1 4)
  (IDIV (ADD (MUL r1 5) r2) 20)
  (IDIV (ADD (ADD (MUL r1 5) r2) (MUL r0 0)) 20)
  (IDIV (IDIV (ADD (MUL r1 5) r2) 5) 4)

same: q:i64 in 0..99999                # a place taken apart and put together
  q
  (ADD (ADD (MUL (IDIV q 100) 100) (MUL (MOD (IDIV q 5) 20) 5)) (MOD q 5))
  (ADD (MUL (IDIV q 24) 24) (MOD (MOD q 48) 24))

same: q:i64
  (MOD (IDIV q 6) 4)
  (IDIV (MOD q 24) 6)

same: q:i64
  (IDIV q 12)
  (IDIV (IDIV q 3) 4)
  (IDIV (MUL q 2) 24)    where q in -1000..1000

same: q:i64 in -50..50                 # exact for every sign
  (IDIV (ADD q 2) 3)
  (IDIV (ADD (MUL q 4) 8) 12)

differ: q:i64 in -50..50               # towards zero: (q + 3) / 3 is not q / 3 + 1 for q = -2
  (IDIV (ADD q 3) 3)
  (ADD (IDIV q 3) 1)

same: q:i64 in 0..999
  (ADD (IDIV q 3) 1)
  (IDIV (ADD q 3) 3)

same: q:i64 in 0..999                  # comparisons: the number on the right, as small as it gets
  (CMPLT q 7)
  (CMPLT (ADD q 3) 10)
  (CMPLT (MUL q 4) 28)
  (CMPLT (MUL q 4) 25)
  (CMPEQ (CMPLT 6 q) false)
  (XOR (CMPLT 6 q) true)
  (CMPLT (IDIV q 7) 1)
  (AND (CMPLT q 7) (CMPLT q 9))
  (CMPLT (CAST:i32 (ADD q 3)) 10)
  (CMPLT (ADD (MUL q 5) 2) 35)

same: r0:i64 in 0..9  r1:i64 in 0..19
  (CMPLT r0 5)
  (CMPLT (ADD (MUL r0 20) r1) 100)

same: x:i32 y:i32                      # equality moves terms whether they wrap or not
  (CMPEQ x y)
  (CMPEQ y x)
  (CMPEQ (ADD x 7) (ADD 7 y))
  (CMPEQ (ADD x (NEG y)) 0)
  (XOR (CMPNE x y) true)

same: r0:i64 in 0..9  r1:i64 in 0..19
  (CMPEQ r0 r1)
  (CMPEQ (CAST:i32 r0) (CAST:i32 r1))
  (CMPEQ (CAST:i16 (MUL r0 2)) (MUL (CAST:i16 r1) 2))

same: b:bool c:bool                    # conditions
  (AND b c)
  (AND c (AND b c))
  (AND (AND c true) b)
  (WHERE b (WHERE c true false) false)

same: b:bool x:f32 y:f32
  (WHERE b x y)
  (WHERE (XOR b true) y x)
  (WHERE (CMPEQ b false) y x)
  (WHERE b (WHERE b x 3.0) y)
  (WHERE (CMPNE (CAST:i32 b) 0) x y)

same: b:bool
  false
  (AND b (XOR b true))
  (AND b false)
  (CMPNE b b)

same: x:f32 y:f32
  (CMPNE x y)
  (XOR (CMPEQ x y) true)

differ: x:f32 y:f32                    # neither holds for NaN
  (XOR (CMPLT x y) true)
  (CMPLT y x)

same: r0:i64 in 0..9  r1:i64 in 0..19  # casts: all becomes i64
  (ADD r0 (MUL r1 3))
  (CAST:i64 (ADD (CAST:i32 r0) (MUL (CAST:i32 r1) 3)))
  (CAST:i64 (CAST:i32 (ADD r0 (MUL r1 3))))

differ: x:i32 y:i32                    # the sum of i32 may wrap
  (CAST:i64 (ADD x y))
  (ADD (CAST:i64 x) (CAST:i64 y))

differ: x:i32                          # from a float it saturates
  (CAST:i8 (CAST:f32 x))
  (CAST:i8 x)

same: x:u64                            # as unsigned
  x
  (IDIV x 1)
  (MOD x 0)
)";

}  // namespace outboard::test
