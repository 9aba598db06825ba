// Products of many pairs of matrices. Every number of a product is one chain of fused
// multiply-adds, in the order of the inner dimension: its bits depend on its row and its column,
// and neither on where these lie nor on what else is computed.

#include <ATen/Parallel.h>
#include <ATen/cpu/vec/vec.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using Vector = at::vec::Vectorized<float>;

constexpr int64_t LANES = Vector::size();
constexpr int WIDEST = LANES >= 16 ? 4 : 2;  // vectors in a row of sums
constexpr int64_t STEP = WIDEST * LANES;

// Rows of sums, so that all of them stay in registers: of 32 with AVX-512, 16 elsewhere.
constexpr int rows_beside(int vectors) { return std::min(8, (LANES >= 16 ? 24 : 12) / vectors); }

// A matrix: where it begins, and from one row and column to the next.
struct Matrix {
  const float* start;
  int64_t row, column;

  Matrix from(int64_t i, int64_t j) const { return {start + i * row + j * column, row, column}; }
};

// So many rows of the product, and so many vectors of each, the last of which holds `last` numbers.
template <int ROWS, int VECTORS>
void tile(Matrix a, Matrix b, float* out, int64_t out_row, int64_t inner, int64_t last) {
  Vector sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; ++j) sums[i][j] = Vector(0.0f);
  for (int64_t k = 0; k < inner; ++k) {
    const float* row = b.start + k * b.row;
    Vector right[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS - 1; ++j) right[j] = Vector::loadu(row + j * LANES);
    row += (VECTORS - 1) * LANES;
    right[VECTORS - 1] = last == LANES ? Vector::loadu(row) : Vector::loadu(row, last);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      Vector left(a.start[i * a.row + k * a.column]);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; ++j) sums[i][j] = at::vec::fmadd(left, right[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS - 1; ++j) sums[i][j].store(out + i * out_row + j * LANES);
    sums[i][VECTORS - 1].store(out + i * out_row + (VECTORS - 1) * LANES, last);
  }
}

// All rows of the product, and so many vectors of each.
template <int VECTORS, int ROWS = rows_beside(VECTORS)>
void columns(int64_t rows, Matrix a, Matrix b, float* out, int64_t out_row, int64_t inner,
             int64_t last) {
  int64_t i = 0;
  for (; i + ROWS <= rows; i += ROWS)
    tile<ROWS, VECTORS>(a.from(i, 0), b, out + i * out_row, out_row, inner, last);
  if constexpr (ROWS > 1)
    if (i < rows)
      columns<VECTORS, ROWS / 2>(
          rows - i, a.from(i, 0), b, out + i * out_row, out_row, inner, last);
}

// Copies columns of a matrix so that those of a row lie next to each other, `STEP` from one row to
// the next.
Matrix copied(Matrix b, float* to, int64_t inner, int64_t wide) {
  int64_t whole_rows = 0, whole_columns = 0;  // of what is transposed in registers
  if (b.row == 1) {
    whole_rows = inner - inner % LANES, whole_columns = wide - wide % LANES;
    for (int64_t k = 0; k < whole_rows; k += LANES)
      for (int64_t j = 0; j < whole_columns; j += LANES)
        at::vec::transpose_mxn<float, LANES, LANES>(
            b.from(k, j).start, b.column, to + k * STEP + j, STEP);
  }
  for (int64_t k = 0; k < inner; ++k)
    for (int64_t j = k < whole_rows ? whole_columns : 0; j < wide; ++j)
      to[k * STEP + j] = *b.from(k, j).start;
  return {to, STEP, 1};
}

}  // namespace

extern "C" {

// For each of a number of pairs the product [rows, width] of [rows, inner] and [inner, width].
// Strides are of numbers; `out` is contiguous.
void chained_products(const float* a, const int64_t* a_strides, const float* b,
                      const int64_t* b_strides, float* out, int64_t number, int64_t rows,
                      int64_t inner, int64_t width) {
  at::parallel_for(0, number, 1, [&](int64_t n, int64_t end) {
    std::vector<float> memory(b_strides[2] == 1 ? 0 : inner * STEP);
    for (; n < end; ++n) {
      Matrix left{a + n * a_strides[0], a_strides[1], a_strides[2]};
      Matrix right{b + n * b_strides[0], b_strides[1], b_strides[2]};
      float* to = out + n * rows * width;
      for (int64_t j = 0; j < width; j += STEP) {
        int64_t wide = std::min(width - j, STEP), last = (wide - 1) % LANES + 1;
        auto* call = wide > 3 * LANES   ? columns<4>
                     : wide > 2 * LANES ? columns<3>
                     : wide > LANES     ? columns<2>
                                        : columns<1>;
        Matrix part = right.from(0, j);
        if (part.column != 1) part = copied(part, memory.data(), inner, wide);
        call(rows, left, part, to + j, width, inner, last);
      }
    }
  });
}

// What inductor's code calls for hooktrainer::chained_products.
AOTITorchError aoti_torch_cpu_chained_products(AtenTensorHandle a, AtenTensorHandle b,
                                               AtenTensorHandle* out) {
  void *left, *right, *to;
  int64_t *a_sizes, *b_sizes, *a_strides, *b_strides;
  if (aoti_torch_get_data_ptr(a, &left) || aoti_torch_get_data_ptr(b, &right) ||
      aoti_torch_get_sizes(a, &a_sizes) || aoti_torch_get_sizes(b, &b_sizes) ||
      aoti_torch_get_strides(a, &a_strides) || aoti_torch_get_strides(b, &b_strides))
    return AOTI_TORCH_FAILURE;
  int64_t number = a_sizes[0], rows = a_sizes[1], inner = a_sizes[2], width = b_sizes[2];
  int64_t sizes[] = {number, rows, width}, strides[] = {rows * width, width, 1};
  if (aoti_torch_empty_strided(3, sizes, strides, aoti_torch_dtype_float32(),
                               aoti_torch_device_type_cpu(), 0, out) ||
      aoti_torch_get_data_ptr(*out, &to))
    return AOTI_TORCH_FAILURE;
  chained_products(static_cast<float*>(left), a_strides, static_cast<float*>(right), b_strides,
                   static_cast<float*>(to), number, rows, inner, width);
  return AOTI_TORCH_SUCCESS;
}
}
