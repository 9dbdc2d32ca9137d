/* What eqsat and threadpoolctl call of oneMKL's libmkl_rt, each function as plain as it can be. */
#define GEMM(name, element) \
  void name(char *ta, char *tb, int *m, int *n, int *k, element *alpha, element *a, int *lda, element *b, int *ldb, \
            element *beta, element *c, int *ldc) { \
    for (int i = 0; i < *m; ++i) \
      for (int j = 0; j < *n; ++j) { \
        element sum = 0; \
        for (int l = 0; l < *k; ++l) \
          sum += (*ta == 'N' ? a[i + l * *lda] : a[l + i * *lda]) * (*tb == 'N' ? b[l + j * *ldb] : b[j + l * *ldb]); \
        c[i + j * *ldc] = *alpha * sum + (*beta ? *beta * c[i + j * *ldc] : 0); \
      } \
  }
#define GEMV(name, element) \
  void name(char *t, int *m, int *n, element *alpha, element *a, int *lda, element *x, int *dx, element *beta, element *y, \
            int *dy) { \
    int rows = *t == 'N' ? *m : *n, terms = *t == 'N' ? *n : *m; \
    for (int i = 0; i < rows; ++i) { \
      element sum = 0; \
      for (int l = 0; l < terms; ++l) sum += (*t == 'N' ? a[i + l * *lda] : a[l + i * *lda]) * x[l * *dx]; \
      y[i * *dy] = *alpha * sum + (*beta ? *beta * y[i * *dy] : 0); \
    } \
  }
GEMM(sgemm_, float)
GEMM(dgemm_, double)
GEMV(sgemv_, float)
GEMV(dgemv_, double)
static int threads = 4, layer;
int MKL_Set_Interface_Layer(int wanted) { return INTERFACE; }
int MKL_Set_Threading_Layer(int wanted) { return layer = wanted < 0 ? layer : wanted; }
int MKL_Get_Max_Threads(void) { return threads; }
int MKL_Set_Num_Threads_Local(int wanted) { int before = threads; threads = wanted; return before; }
void MKL_Get_Version_String(char *text, int size) { text[0] = 0; }
