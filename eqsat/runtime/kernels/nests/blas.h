/* Products of matrices by BLAS, whose functions are set when the library is loaded. */
typedef void gemm_s(char *, char *, int *, int *, int *, float *, float *, int *, float *, int *, float *, float *, int *);
typedef void gemm_d(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
typedef void gemv_s(char *, int *, int *, float *, float *, int *, float *, int *, float *, float *, int *);
typedef void gemv_d(char *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
static gemm_s *blas_s;
static gemm_d *blas_d;
static gemv_s *blas_vector_s;
static gemv_d *blas_vector_d;
int set_blas(void *const *p) {
  blas_s = (gemm_s *)p[0];
  blas_d = (gemm_d *)p[1];
  blas_vector_s = (gemv_s *)p[2];
  blas_vector_d = (gemv_d *)p[3];
  return 0;
}
#define MULTIPLY(letter, element) \
  static inline __attribute__((unused)) void multiply_##letter( \
      char *transa, char *transb, int rows, int columns, int summed, const element *a, int a_step, const element *b, \
      int b_step, int is_updated, element *c, int c_step) { \
    element one = 1, kept = is_updated; \
    blas_##letter(transa, transb, &rows, &columns, &summed, &one, (element *)a, &a_step, (element *)b, &b_step, &kept, c, \
                  &c_step); \
  } \
  static inline __attribute__((unused)) void multiply_vector_##letter( \
      char *trans, int rows, int columns, const element *a, int a_step, const element *x, int x_step, int is_updated, \
      element *y, int y_step) { \
    element one = 1, kept = is_updated; \
    blas_vector_##letter(trans, &rows, &columns, &one, (element *)a, &a_step, (element *)x, &x_step, &kept, y, &y_step); \
  }
MULTIPLY(s, float)
MULTIPLY(d, double)
