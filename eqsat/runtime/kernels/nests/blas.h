/* Products of matrices by libraries with BLAS, whose functions are set when this library is loaded. */
typedef void gemm_s(char *, char *, int *, int *, int *, float *, float *, int *, float *, int *, float *, float *, int *);
typedef void gemm_d(char *, char *, int *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
typedef void gemv_s(char *, int *, int *, float *, float *, int *, float *, int *, float *, float *, int *);
typedef void gemv_d(char *, int *, int *, double *, double *, int *, double *, int *, double *, double *, int *);
#define MULTIPLY(library, letter, element) \
  static inline __attribute__((unused)) void multiply_##library##_##letter( \
      char *transa, char *transb, int rows, int columns, int summed, const element *a, int a_step, const element *b, \
      int b_step, int is_updated, element *c, int c_step) { \
    element one = 1, kept = is_updated; \
    library##_##letter(transa, transb, &rows, &columns, &summed, &one, (element *)a, &a_step, (element *)b, &b_step, &kept, \
                       c, &c_step); \
  } \
  static inline __attribute__((unused)) void multiply_vector_##library##_##letter( \
      char *trans, int rows, int columns, const element *a, int a_step, const element *x, int x_step, int is_updated, \
      element *y, int y_step) { \
    element one = 1, kept = is_updated; \
    library##_vector_##letter(trans, &rows, &columns, &one, (element *)a, &a_step, (element *)x, &x_step, &kept, y, \
                              &y_step); \
  }
#define BLAS(library) \
  static gemm_s *library##_s; \
  static gemm_d *library##_d; \
  static gemv_s *library##_vector_s; \
  static gemv_d *library##_vector_d; \
  int set_##library(void *const *p) { \
    library##_s = (gemm_s *)p[0]; \
    library##_d = (gemm_d *)p[1]; \
    library##_vector_s = (gemv_s *)p[2]; \
    library##_vector_d = (gemv_d *)p[3]; \
    return 0; \
  } \
  MULTIPLY(library, s, float) \
  MULTIPLY(library, d, double)
